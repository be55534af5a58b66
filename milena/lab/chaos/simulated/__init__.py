"""The simulated place, its faults, what only it knows, and the seeds of `milena sim`."""
