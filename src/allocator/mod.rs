//! A model of `PyTorch`'s CUDA caching allocator. It depends on nothing else in this crate.
