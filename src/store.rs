//! The results folder: names, atomic writes, discovery.
