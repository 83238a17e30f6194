//! What verdicts mean for the exit code.

use crate::exit::Exit;
use crate::protocol::{Judged, Judgement};

/// 1 where something is refuted that is not accepted, 5 where something is undecided, else 0.
pub fn exit(judged: &Judged) -> Exit {
    match judged.judgement {
        Judgement::Supported => Exit::Success,
        Judgement::Undecided => Exit::Undecided,
        Judgement::Refuted => Exit::Refuted,
    }
}
