//! memlab finds out why a `PyTorch` training job uses the GPU memory it uses.
//!
//! This library is everything the `memlab` runner does; it links no libtorch. One run's data flows one way:
//!
//! ```text
//! experiment TOML -> Plan -> executor (local | Slurm) -> worker process -> report JSON -> collation
//!                                                                              |-> tables, CSV, Markdown, HTML
//!                                                                              `-> hypotheses, baselines -> exit code
//! ```
//!
//! | module | owns |
//! | --- | --- |
//! | [`experiment`] | what a user writes: types, reading with source spans, checking |
//! | [`plan`] | expansion, order, ids: from an experiment to what must be run |
//! | [`protocol`] | the types that both binaries or the results folder share |
//! | [`exec`] | how runs are executed; emits events, never prints |
//! | [`store`] | the results folder: names, atomic writes, discovery |
//! | [`indicator`] | samples to indicators |
//! | [`collate`] | many reports to one table |
//! | [`check`] | hypotheses, trends, baselines |
//! | [`limit`] | the largest value that fits |
//! | [`render`] | one output format per file |
//! | [`allocator`] | a model of `PyTorch`'s CUDA caching allocator |
//! | [`snapshot`] | `PyTorch` memory snapshots: read, write, summarise, replay |
//! | [`cli`] | one file per sub-command: parse, call, print |
//!
//! [`units`], [`diag`] (what is wrong, where, and the remedy), [`exit`] and [`parallel`] serve all of them.
//!
//! Who may import whom is a table in `tests/architecture.rs`, which reads the `use` lines and holds the code to it.

pub mod allocator;
pub mod check;
pub mod cli;
pub mod collate;
pub mod diag;
pub mod exec;
pub mod exit;
pub mod experiment;
pub mod indicator;
pub mod limit;
pub mod parallel;
pub mod plan;
pub mod protocol;
pub mod render;
pub mod snapshot;
pub mod store;
pub mod units;
