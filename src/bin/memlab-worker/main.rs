//! `memlab-worker` executes exactly one run (one rank of it) and ends.

fn main() {}
