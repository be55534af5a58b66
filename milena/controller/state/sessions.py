"""Broker sessions and progress, kept in memory only (Kafka's BrokerHeartbeatManager).

A session belongs to (broker id, broker epoch): a heartbeat of an earlier incarnation does not renew the session of a
later one. Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from milena.node.metadata.image import BrokerImage
from milena.protocol.types import BrokerEpoch, NodeId, Offset

SessionKey: TypeAlias = tuple[int, int]
"""Broker id and broker epoch."""


@dataclass(slots=True)
class Progress:
    """How far a broker has read the metadata log, and since which offset it is in controlled shutdown."""

    metadata_offset: int = -1
    shutdown_offset: Offset | None = None
    """The last offset of the records that moved leaders away from it; None outside of a controlled shutdown."""


class Sessions:
    """Last contacts and progress of brokers."""

    __slots__ = ("_contacts", "_progress", "timeout")

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._contacts: dict[SessionKey, float] = {}
        self._progress: dict[int, Progress] = {}

    def activate(self, brokers: Iterable[BrokerImage], now: float) -> None:
        """The controller becomes active: each unfenced broker gets a full session timeout."""
        for broker in brokers:
            if not broker.fenced:
                self.touch(broker.id, broker.epoch, now)

    def touch(self, broker: int, epoch: int, now: float) -> None:
        self._contacts[(broker, epoch)] = now

    def end(self, broker: int, epoch: int) -> None:
        """End the session of an incarnation that may shut down, so that a restart need not wait for the timeout."""
        self._contacts.pop((broker, epoch), None)

    def valid(self, broker: int, epoch: int, now: float) -> bool:
        contact = self._contacts.get((broker, epoch))
        return contact is not None and not self._expired(contact, now)

    def pop_expired(self, now: float) -> tuple[NodeId, BrokerEpoch] | None:
        """Remove and return one expired session."""
        for key, contact in self._contacts.items():
            if self._expired(contact, now):
                del self._contacts[key]
                return NodeId(key[0]), BrokerEpoch(key[1])
        return None

    def _expired(self, contact: float, now: float) -> bool:
        return contact + self.timeout < now

    def progress(self, broker: int) -> Progress:
        return self._progress.setdefault(broker, Progress())

    def forget_progress(self, broker: int) -> None:
        """Forget the progress of a broker that has a new incarnation or is unregistered."""
        self._progress.pop(broker, None)

    def lowest_active_offset(self, brokers: Iterable[BrokerImage]) -> int | None:
        """Return the lowest metadata offset of all active brokers, or None if there is none."""
        offsets = [
            progress.metadata_offset
            for broker in brokers
            if not broker.fenced and (progress := self.progress(broker.id)).shutdown_offset is None
        ]
        return min(offsets, default=None)
