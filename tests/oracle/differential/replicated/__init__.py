"""Replication: Kafka and Milena with three brokers each."""
