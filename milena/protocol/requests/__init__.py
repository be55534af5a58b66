"""Frames, headers, and codecs of requests and responses."""
