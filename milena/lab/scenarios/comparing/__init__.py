"""Compares truncation algorithms on the same logs: KIP-101, KIP-279, and the alternatives that KIP-279 rejected."""
