"""The scripts by name: the module of ``milena.scripts`` that runs each."""

from __future__ import annotations

from typing import Final

MODULES: Final = {
    "kafka-topics": "topics",
    "kafka-broker-api-versions": "api_versions",
    "kafka-console-producer": "console_producer",
    "kafka-console-consumer": "console_consumer",
    "kafka-consumer-groups": "groups",
    "kafka-configs": "configs",
    "kafka-storage": "storage_tool",
    "kafka-get-offsets": "get_offsets",
    "kafka-cluster": "cluster_tool",
    "kafka-features": "features_tool",
    "kafka-transactions": "transactions_tool",
    "kafka-metadata-quorum": "quorum",
    "kafka-log-dirs": "log_dirs",
    "kafka-delete-records": "delete_records",
    "kafka-leader-election": "election",
    "kafka-reassign-partitions": "reassignments",
    "kafka-dump-log": "dump_log",
    "kafka-server-start": "server_start",
    "kafka-server-stop": "server_stop",
}
