"""The work of a run: who writes, who reads, and what is kept to the end."""
