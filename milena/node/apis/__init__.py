"""API modules that both kinds of node serve."""
