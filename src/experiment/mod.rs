//! What a user writes: types, reading with source spans, checking.
