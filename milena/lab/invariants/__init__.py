"""Invariants of a simulated cluster, checked after every event by ``watch.Watch``; the other modules have the rules."""
