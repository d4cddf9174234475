//! The experiments: each measures one thing and returns records in the common shape.

pub mod depth;
