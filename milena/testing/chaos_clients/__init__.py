"""Adapters of client libraries for chaos runs.

Each adapter implements ``milena.lab.chaos.clients.Clients`` with one library: aiokafka, confluent-kafka or
kafka-python. The libraries are not dependencies of Milena; import an adapter only if its library is installed.
"""
