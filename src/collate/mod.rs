//! Many reports to one table.
