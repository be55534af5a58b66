"""What a log remembers of its records: leader epochs and producers."""
