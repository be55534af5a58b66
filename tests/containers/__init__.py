"""The image and the compose file, run by an engine: `make test-all ONLY=containers`. Skipped where none answers."""
