//! Builds the worker's C++ part; does nothing without the `worker` feature.
fn main() {}
