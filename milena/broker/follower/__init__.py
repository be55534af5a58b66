"""Replicas that follow: fetching from leaders, truncation, catching up (KIP-101, KIP-227, KIP-279, KIP-903)."""
