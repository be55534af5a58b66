"""Tests of what compares Milena with Kafka."""
