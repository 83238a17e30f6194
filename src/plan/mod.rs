//! Expansion, order and ids: from an experiment to what must be run.
