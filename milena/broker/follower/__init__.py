"""Fetchers of followers: fetching from leaders, truncation, start in the tier (KIP-101, 227, 279, 405, 903)."""
