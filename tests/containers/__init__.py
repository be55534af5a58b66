"""The image and the compose file, run by an engine: `make containers`. Skipped where none answers."""
