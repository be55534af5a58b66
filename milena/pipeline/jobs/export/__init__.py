"""Exports topics into tables. Each run appends the new records; each record is in the table once."""
