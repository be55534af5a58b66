"""DescribeLogDirs (key 35), versions 1-5: the log directories of this broker, and what is in them.

An offline directory has the error KAFKA_STORAGE_ERROR and no replicas. From v4 on the response has the total and usable
bytes of the file system, from v5 on whether the directory is cordoned. The copy of a moving replica is a future
replica; its lag is the number of records not copied yet. KIPs: 113, 827, 1066.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.manager.log_dir import LogDir

if TYPE_CHECKING:
    from milena.config.node_config import NodeConfig
    from milena.protocol.apis import (
        DescribeLogDirsPartitionFields,
        DescribeLogDirsRequest,
        DescribeLogDirsResponseFields,
        DescribeLogDirsResultFields,
        DescribeLogDirsTopicFields,
    )
    from milena.runtime.context import Runtime
    from milena.storage.manager.log_manager import LogManager

UNKNOWN_BYTES: Final = -1


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def config(self) -> NodeConfig: ...
    @property
    def logs(self) -> LogManager: ...
    @property
    def runtime(self) -> Runtime: ...


def handle(node: Needs, ctx: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponseFields:
    requested = None
    if request.topics is not None:
        requested = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return {"error_code": 0, "results": [_directory(node, directory, requested) for directory in node.logs.dirs]}


def _directory(node: Needs, directory: LogDir, requested: set[tuple[str, int]] | None) -> DescribeLogDirsResultFields:
    fields: DescribeLogDirsResultFields = {
        "error_code": int(ErrorCode.NONE if directory.online else ErrorCode.KAFKA_STORAGE_ERROR),
        "log_dir": directory.path,
        "topics": [],
        "total_bytes": UNKNOWN_BYTES,
        "usable_bytes": UNKNOWN_BYTES,
        "is_cordoned": is_cordoned(node.config, directory),
    }
    if not directory.online:
        return fields
    try:
        total, usable = node.runtime.disk.usage(directory.path)
    except OSError as error:
        node.logs.take_offline(directory, error)
        return fields | {"error_code": int(ErrorCode.KAFKA_STORAGE_ERROR)}
    topics: dict[str, list[DescribeLogDirsPartitionFields]] = {}
    for (topic, index), log in sorted((directory.logs | directory.futures).items()):
        if requested is None or (topic, index) in requested:
            topics.setdefault(topic, []).append(_replica(node, log, is_future=(topic, index) in directory.futures))
    named: list[DescribeLogDirsTopicFields] = [
        {"name": name, "partitions": partitions} for name, partitions in topics.items()
    ]
    return fields | {"topics": named, "total_bytes": total, "usable_bytes": usable}


def _replica(node: Needs, log: UnifiedLog, *, is_future: bool) -> DescribeLogDirsPartitionFields:
    end = log.high_watermark
    if is_future:
        current = node.logs.get(log.topic, log.partition)
        end = log.log_end_offset if current is None else current.log_end_offset
    lag = max(end - log.log_end_offset, 0)
    return {
        "partition_index": log.partition,
        "partition_size": log.size,
        "offset_lag": lag,
        "is_future_key": is_future,
    }


def is_cordoned(config: NodeConfig, directory: LogDir) -> bool:
    """Whether ``cordoned.log.dirs`` contains the directory: it takes no new replicas (KIP-1066)."""
    cordoned = config.get_list("cordoned.log.dirs")
    return directory.path in cordoned or "*" in cordoned
