"""The metadata log: writing, formatting, serving fetches, repair, and the quorum state."""
