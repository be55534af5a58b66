"""Delayed operations: deadlines, the purgatory, and long work in slices."""
