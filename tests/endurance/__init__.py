"""`python -m tests.endurance`: an hour of mixed load on three brokers; their memory and descriptors."""
