"""Tests of the image and the compose file: `make test-all ONLY=containers`. Skipped if no container engine answers."""
