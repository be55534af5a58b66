"""The metadata image: replayed from the log, kept in snapshots, observed."""
