"""Helpers for tests of other projects: the pytest plugin, a cluster of processes, a container, and scenarios."""
