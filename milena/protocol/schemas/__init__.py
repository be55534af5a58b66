"""Kafka's message schemas, and reading and writing values by them."""
