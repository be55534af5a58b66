"""Random sequences of requests to Kafka and Milena. Each is played up to its first difference, and then minimised."""
