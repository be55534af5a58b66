"""A tier without its cluster: verifying it, and restoring a cluster from it."""
