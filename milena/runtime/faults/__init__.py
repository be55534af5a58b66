"""Ports with faults on demand, for nodes with ``--lab``."""
