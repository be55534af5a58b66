"""The tests of chaos client adapters (``contract``), and the adapter of Kafka's Java client.

The adapters of the Python libraries are in ``milena.testing.chaos_clients``. tests/wire runs the contract over them,
tests/oracle runs it over the Java client.
"""
