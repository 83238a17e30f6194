//! Hypotheses, trends and baselines.
