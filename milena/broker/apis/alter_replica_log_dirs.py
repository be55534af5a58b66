"""AlterReplicaLogDirs (key 34), versions 1-2: move replicas of this broker to another of its log directories.

The response is sent when the copies have been started; DescribeLogDirs reports their progress. Naming the directory
that contains the log cancels a move. A replica that this broker does not host is rejected; Kafka stores the directory
for a later replica, we do not. A cordoned directory takes no replicas. If a partition is named twice, the last
directory counts, as in Kafka. KIPs: 113, 858, 1066.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.apis.describe_log_dirs import is_cordoned
from milena.node.api import RequestContext
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.storage.files.names import has_room_for_mark
from milena.storage.manager.log_dir import LogDir

if TYPE_CHECKING:
    from milena.broker.hosting.log_mover import LogMover
    from milena.broker.replica.partitions import PartitionSet
    from milena.config.node_config import NodeConfig
    from milena.protocol.apis import (
        AlterReplicaLogDirPartitionResultFields,
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponseFields,
    )
    from milena.storage.manager.log_manager import LogManager

REPLICAS_PER_YIELD: Final = 50
"""Replicas whose copies are started between two yields: each start creates a folder."""


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def config(self) -> NodeConfig: ...
    @property
    def log_mover(self) -> LogMover: ...
    @property
    def logs(self) -> LogManager: ...
    @property
    def partitions(self) -> PartitionSet: ...


def handle(
    node: Needs, ctx: RequestContext, request: AlterReplicaLogDirsRequest
) -> Cooperative[AlterReplicaLogDirsResponseFields]:
    targets = {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    budget = YieldBudget(REPLICAS_PER_YIELD)
    errors = yield from budget.apply(list(targets), lambda target: _move(node, targets[target], *target))
    topics: dict[str, list[AlterReplicaLogDirPartitionResultFields]] = {}
    for (name, index), error in zip(targets, errors, strict=True):
        topics.setdefault(name, []).append({"partition_index": index, "error_code": int(error)})
    return {"results": [{"topic_name": name, "partitions": partitions} for name, partitions in topics.items()]}


def _move(node: Needs, path: str, topic: str, index: int) -> ErrorCode:
    if not has_room_for_mark(topic, index):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    try:
        target = _directory(node, path)
        node.log_mover.move(node.partitions.get(topic, index), target)
    except KafkaError as error:
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return error.code
    return ErrorCode.NONE


def _directory(node: Needs, path: str) -> LogDir:
    """Return the directory with this path, if it takes replicas. Raises KafkaError LOG_DIR_NOT_FOUND,
    KAFKA_STORAGE_ERROR, INVALID_REPLICA_ASSIGNMENT."""
    directory_found = next((directory for directory in node.logs.dirs if directory.path == path), None)
    if directory_found is None:
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND)
    if not directory_found.online:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    if is_cordoned(node.config, directory_found):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    return directory_found
