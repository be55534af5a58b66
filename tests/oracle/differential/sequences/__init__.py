"""Random sequences of requests to Kafka and Milena, each until its first difference, made small."""
