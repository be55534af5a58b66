"""The lab command `observe` of a controller: the changes of topics, partitions and brokers since the last call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, TypeAlias

from milena.node.observed_changes import PAGE, Sessions, skip
from milena.protocol.uuids import to_text

if TYPE_CHECKING:
    from uuid import UUID

    from milena.controller.state.state import ControllerState
    from milena.node.metadata.image import PartitionImage

Key: TypeAlias = tuple[str, int]


class Observed(Protocol):
    """The part of the node that the command reads."""

    @property
    def state(self) -> ControllerState: ...


class Observation:
    """The registrations of one controller as rows of JSON."""

    def __init__(self, controller: Observed) -> None:
        self._controller = controller
        self._sessions: Sessions[Key, tuple[UUID, PartitionImage]] = Sessions()

    def observe(self, session: str, from_: int = 0, end: bool = False) -> dict[str, object]:
        """Return the partitions whose registration has changed since the session's last round. A row has leader, leader
        epoch, partition epoch, replicas, ISR, adding, removing, ELR, recovery state.
        Raises LookupError for a later page of an unknown session."""
        if end:
            self._sessions.end(session)
            return {}
        image = self._controller.state.image
        seen = self._sessions.use(session, start=from_)
        changed, complete = seen.page(self._rows(from_))
        topics = [image.topics[name] for name in dict.fromkeys(name for (name, _), _ in changed)]
        return {
            "topics": {topic.name: [to_text(topic.id), len(topic.partitions)] for topic in topics},
            "rows": [[*key, row_of(partition)] for key, (_, partition) in changed],
            "gone": [list(key) for key in seen.gone(lambda key: image.partition(*key) is not None)] if complete else [],
            "first": seen.first,
            "next": None if complete else from_ + PAGE,
            "brokers": {
                str(broker.id): [broker.epoch, broker.fenced, broker.in_controlled_shutdown, broker.rack]
                for broker in image.brokers.values()
            },
            "metadata_offset": image.offset,
        }

    def _rows(self, start: int) -> Iterator[tuple[Key, tuple[UUID, PartitionImage]]]:
        """The images themselves are the rows, with the topic's id: they are immutable, and most comparisons find the
        same object."""
        topics = self._controller.state.image.topics.values()
        keys = ((topic, number) for topic in topics for number in topic.partitions)
        for topic, number in skip(keys, start):
            yield (topic.name, number), (topic.id, topic.partitions[number])


def row_of(partition: PartitionImage) -> list[object]:
    """Return the row of one partition, as the docstring of `observe` describes it."""
    return [
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        list(partition.replicas),
        list(partition.isr),
        list(partition.adding),
        list(partition.removing),
        list(partition.elr),
        partition.recovery_state,
    ]
