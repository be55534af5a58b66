"""The data pipeline: readers of Kafka's files for Spark."""
