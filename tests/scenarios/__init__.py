"""The scenarios of Kafka's design documents, played step by step in the simulation and on real processes."""
