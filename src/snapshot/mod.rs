//! `PyTorch` memory snapshots: read, write, summarise, replay.
