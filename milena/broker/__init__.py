"""The broker: partitions, replication, groups, and the requests of clients."""

if __name__ != "milena.broker":  # by the link at the root of the repository: every module would exist twice
    raise ImportError("import milena.broker, not broker")
