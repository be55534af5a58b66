"""Remote log metadata in the topic ``__remote_log_metadata`` (docs/kafka-semantics.md: The metadata topic)."""
