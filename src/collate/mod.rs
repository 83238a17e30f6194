//! Many reports to one table. Tables are data; how they look is the business of [`crate::render`].
//!
//! The order of the reports given is the order of the rows. What is not known is [`Cell::Empty`], never zero.

mod comparison;
mod table;

pub use comparison::{Ranks, comparison, maximum_over_ranks, phases, samples};
pub use table::{Cell, Column, Table};
