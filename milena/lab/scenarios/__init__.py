"""Scenarios as data: the sequences of the design documents, and the states that a run must reach."""
