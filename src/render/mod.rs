//! One output format per file.
