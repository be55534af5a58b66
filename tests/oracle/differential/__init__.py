"""Kafka and Milena get the same requests; their answers must be the same but for ids, times and addresses."""
