"""Creates the group coordinator from the broker's configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milena.broker.groups.coordinator import GroupCoordinator
from milena.broker.groups.deleted_topic_offsets import TopicsView
from milena.broker.groups.model import GroupSettings
from milena.broker.metadata.current_metadata import CurrentMetadata
from milena.broker.metadata.own_changes import OwnChanges
from milena.config.node_config import NodeConfig
from milena.node.serving.scheduler import Scheduler
from milena.protocol.types import OFFSETS_TOPIC
from milena.runtime.context import Runtime
from milena.runtime.tasks import Tasks

CURRENT_TIMEOUT: Final = 10.0
"""Seconds that this broker may take to apply what the controller has committed."""


def group_coordinator(
    runtime: Runtime,
    tasks: Tasks,
    work: Scheduler,
    config: NodeConfig,
    metadata: CurrentMetadata,
    changes: Callable[[], OwnChanges],
) -> GroupCoordinator:
    """Create the coordinator. Groups are hashed over the partitions that ``__consumer_offsets`` has, or will be created
    with. Long work of the coordinator is scheduled by ``work`` like that of large requests. ``changes`` is called only
    after groups are loaded, when the broker is complete."""
    default_count = config.get_int("offsets.topic.num.partitions")

    def partition_count() -> int:
        topic = metadata.image().topics.get(OFFSETS_TOPIC)
        return len(topic.partitions) if topic is not None else default_count

    return GroupCoordinator(
        runtime,
        tasks,
        turn=work.turn,
        partition_count=partition_count,
        topics=TopicsView(
            exists=lambda topic_id: topic_id in metadata.image().topics_by_id,
            current=lambda: changes().caught_up(CURRENT_TIMEOUT),
        ),
        settings=GroupSettings(
            min_session_ms=config.get_int("group.min.session.timeout.ms"),
            max_session_ms=config.get_int("group.max.session.timeout.ms"),
            max_size=config.get_int("group.max.size"),
            initial_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        ),
        commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
        load_bytes=config.get_int("offsets.load.buffer.size"),
        retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
        check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
    )
