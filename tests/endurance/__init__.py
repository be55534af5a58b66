"""`make endurance`: an hour of mixed load on three brokers, and what it does to their memory and descriptors."""
