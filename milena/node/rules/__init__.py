"""Fault rules: they hold, delay, drop, trace or refuse requests of a node (glossary: fault rule)."""
