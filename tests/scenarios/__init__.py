"""The design documents' scenarios, step by step: in the simulated world and on real processes."""
