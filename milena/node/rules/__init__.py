"""Rules that catch requests, and the trace of requests."""
