"""Configurations of public projects: read, and used to start a node that is written to and read from."""
