"""The simulated world, its load, faults and judges, and scenarios."""
