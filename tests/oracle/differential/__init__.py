"""Kafka and Milena get the same requests. Their responses must be equal except for ids, times and addresses."""
