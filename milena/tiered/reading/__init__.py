"""Reading records from the tier."""
