"""Kafka's wire protocol and record formats."""

if __name__ != "milena.protocol":  # by the link at the root of the repository: every module would exist twice
    raise ImportError("import milena.protocol, not protocol")
