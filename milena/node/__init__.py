"""The parts that brokers and controllers share: request serving, connections to other nodes, the metadata image."""
