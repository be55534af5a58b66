"""Configuration under Kafka's names: keys and checks, sources, and the parsed objects of a node and a topic."""
