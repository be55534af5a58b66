"""The topics that a replay writes to."""

from __future__ import annotations

from collections.abc import Iterable

from milena.pipeline.brokers import Brokers
from milena.pipeline.errors import PipelineError
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import source_options
from milena.pipeline.position import Position
from milena.protocol.types import ZERO_UUID, TopicPartition
from milena.protocol.uuids import to_text


def ends_of(bootstrap: str, places: Iterable[TopicPartition]) -> Position:
    """Return the end offsets of the logs of these partitions, and the ids of their topics. Raises PipelineError, also
    if a partition does not exist."""
    wanted = sorted(places)
    with LoopThread() as loop:
        brokers = Brokers(loop, source_options({"kafka.bootstrap.servers": bootstrap, "subscribePattern": ".*"}))
        topics = brokers.topics()
        for topic, number in wanted:
            view = topics.get(topic)
            if view is None or view.error:
                raise PipelineError(
                    f"there is no topic {topic} at {bootstrap}: create it with as many partitions as its source"
                )
            if number not in view.partitions:
                raise PipelineError(
                    f"topic {topic} at {bootstrap} has {len(view.partitions)} partitions, but there are records of "
                    f"partition {number}"
                )
        ids = {topic: to_text(topics[topic].id or ZERO_UUID) for topic, _ in wanted}
        return Position({place: brokers.bounds(*place)[1] for place in wanted}, ids)
