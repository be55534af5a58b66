"""The metadata log: writing, formatting, serving fetches, and the quorum state."""
