"""Rules that intercept requests, and the trace of requests."""
