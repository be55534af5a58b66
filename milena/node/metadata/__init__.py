"""The metadata image: replay of the metadata log, snapshots, and the observer that fetches the log."""
