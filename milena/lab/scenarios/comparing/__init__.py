"""Algorithms beside each other on the same logs: what KIP-279 chose, what it replaced, and what it rejected."""
