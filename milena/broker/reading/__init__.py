"""Delayed operations on records: fetches, commits of acks=all produces, and reads from the remote tier."""
