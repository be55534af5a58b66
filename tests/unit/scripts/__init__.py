"""Tests of Kafka's scripts without a cluster."""
