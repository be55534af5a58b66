"""Delayed operations: their deadlines, and the purgatory."""
