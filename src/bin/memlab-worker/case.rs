//! What the anonymous cases do. Besides SOLUTION.md this is the only place that knows.

use memlab::protocol::Case;

use crate::optimizer::{AdamW, Optimizer, Sgd};

/// The behaviour of one case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Behaviour {
    optimizer: Kind,
    /// Whether backward keeps the graph and every loss is kept until the run ends.
    pub(crate) retains_graphs: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sgd,
    AdamW,
}

impl Behaviour {
    /// The behaviour of `case`.
    pub(crate) fn of(case: Case) -> Self {
        match case {
            Case::Alpha => Self { optimizer: Kind::Sgd, retains_graphs: false },
            Case::Beta => Self { optimizer: Kind::AdamW, retains_graphs: false },
            Case::Gamma => Self { optimizer: Kind::Sgd, retains_graphs: true },
        }
    }

    /// The optimizer, which has not seen a gradient yet.
    pub(crate) fn optimizer(self) -> Box<dyn Optimizer> {
        match self.optimizer {
            Kind::Sgd => Box::new(Sgd { learning_rate: 1e-3 }),
            Kind::AdamW => Box::new(AdamW::new(1e-4)),
        }
    }
}
