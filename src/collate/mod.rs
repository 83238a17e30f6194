//! Many reports to one table. Tables are data; how they look is the business of [`crate::render`].
//!
//! Rows keep the plan's order. What is not known is [`Cell::Empty`], never zero; a run without a report has a row that says why.

mod comparison;
mod difference;
mod fit;
mod reproduction;
mod response;
mod row;
mod series;
mod status;
mod suspect;
mod table;

pub use comparison::{Ranks, axis_cell, axis_column, comparison, maximum_over_ranks, phases, results, samples};
pub use difference::{Difference, difference};
pub use fit::{Fit, fit};
pub use reproduction::reproduction;
pub use response::responses;
pub use row::{Collation, Row};
pub use series::{Series, along, position, setting, varied};
pub use status::{has_failed, status, tally};
pub use suspect::suspect;
pub use table::{Cell, Column, Table};
