//! The largest value of an axis that fits.
