"""Remote log metadata in the topic ``__remote_log_metadata`` (kafka-behaviour A9)."""
