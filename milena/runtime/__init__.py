"""The ports to time, randomness, network, disk and tasks, and their real adapters."""
