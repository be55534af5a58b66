"""Exports topics into tables: each record once, what is new with each run."""
