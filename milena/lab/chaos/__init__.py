"""Chaos: clients work on a cluster while faults are injected by a seed, and the history of what they saw is judged."""
