"""Connections to other nodes, and cutting them."""
