"""Frames, headers, requests and responses."""
