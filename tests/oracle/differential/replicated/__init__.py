"""Comparisons of replication: Kafka and Milena with three brokers each."""
