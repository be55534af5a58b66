"""The metadata log: writing, formatting, fetching, and the quorum's state."""
