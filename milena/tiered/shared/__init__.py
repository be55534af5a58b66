"""What copying, deleting and reading share on one broker."""
