"""The work on the tier: copying, expiring, deleting."""
