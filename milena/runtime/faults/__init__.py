"""Ports with faults on demand, for nodes of the lab."""
