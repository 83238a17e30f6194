//! One file per sub-command: parse, call, print. Only this module prints.

use crate::exit::Exit;

/// Runs the command line and says what the process ends with.
pub fn main() -> Exit {
    Exit::Success
}
