//! Instruction counts of the engine; see `benches/`.
