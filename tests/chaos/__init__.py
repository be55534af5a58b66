"""Chaos runs in the places that only the tests have: faults on real nodes, and a verdict on what the clients saw."""
