"""Serving records: fetches, long polls, and reads from the remote tier."""
