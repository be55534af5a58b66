"""State that copying, deleting and reading share on one broker."""
