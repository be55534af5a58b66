"""Scenarios as data: what the design documents draw, and what a run of them must come to."""
