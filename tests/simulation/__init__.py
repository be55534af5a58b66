"""Whole clusters in one process: simulated clock, network and disks, by seed."""
