//! How runs are executed: local processes, Slurm arrays. Emits events, never prints.
