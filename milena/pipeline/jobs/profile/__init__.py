"""Profiles topics: which keys, sizes, rates and latencies they have."""
