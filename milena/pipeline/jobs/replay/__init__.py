"""Replays topics into another cluster."""
