"""API modules whose behaviour the test's node object decides."""
