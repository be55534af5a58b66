"""A node's replica of ``__cluster_metadata-0`` on disk: its folder, its topic configuration, and opening the log."""

from __future__ import annotations

from typing import Final

from milena.config.node_config import NodeConfig
from milena.config.topic_config import TopicConfig
from milena.protocol.types import METADATA_TOPIC, METADATA_TOPIC_ID, Offset
from milena.runtime.context import Runtime
from milena.storage.log.loading import open_alone
from milena.storage.log.unified_log import UnifiedLog

MAX_BATCH_BYTES: Final = 8 << 20
_NEVER: Final = str(2**63 - 1)


def metadata_folder(config: NodeConfig) -> str:
    """Return the path of the metadata log."""
    return f"{config.metadata_log_dir}/{METADATA_TOPIC}-0"


def metadata_log_config(config: NodeConfig) -> TopicConfig:
    """Return the topic configuration. Retention by time or size is disabled: ``snapshot_keeper`` deletes segments."""
    internal = config.get_int_or_none("internal.metadata.log.segment.bytes")
    return TopicConfig.effective(
        config,
        ({} if internal is None else {"internal.segment.bytes": str(internal)})
        | {
            "segment.bytes": str(config.get_int("metadata.log.segment.bytes")),
            "segment.ms": str(config.get_int("metadata.log.segment.ms")),
            "max.message.bytes": str(MAX_BATCH_BYTES),
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "cleanup.policy": "delete",
            "message.timestamp.type": "CreateTime",
            "flush.messages": _NEVER,
        },
    )


def open_metadata_log(runtime: Runtime, config: NodeConfig, *, recovery_point: Offset) -> UnifiedLog:
    """Open or create the log; ``recovery_point`` is the end of its latest snapshot. Blocks. Raises OSError."""
    return open_alone(
        runtime.disk,
        runtime.clock,
        metadata_folder(config),
        METADATA_TOPIC,
        0,
        METADATA_TOPIC_ID,
        metadata_log_config(config),
        recovery_point=recovery_point,
    )
