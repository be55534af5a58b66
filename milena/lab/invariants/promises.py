"""Tracks which promises are void, from the controller's image and the faults of disks.

A record is committed once all members of the ISR have it. It stays committed while a replica that has it can be
elected, and no replica without it can. A member of the ISR that has lost unsynced data (power loss, wiped disk) is
*short* until it is removed from the ISR; it rejoins only with all committed records. If all members of an ISR are
short, or a leader is elected from outside of it, the promises are void.
"""

from __future__ import annotations

from collections.abc import Iterable

from milena.lab.invariants.replicas import PartitionKey
from milena.node.metadata.image import NO_LEADER, PartitionImage


class Promises:
    """The promises of all partitions."""

    def __init__(self) -> None:
        self._short: dict[PartitionKey, set[int]] = {}
        self._empty: dict[PartitionKey, set[int]] = {}
        """The short members whose disks were wiped."""
        self._front_lost: set[PartitionKey] = set()

    def has_front(self, key: PartitionKey) -> bool:
        """Whether all possible leaders have the first committed records: A power loss removes only the ends of logs,
        but the log of a wiped replica, or of one elected from outside of the ISR, may start at any offset."""
        return key not in self._front_lost

    def is_short(self, key: PartitionKey, broker: int) -> bool:
        return broker in self._short.get(key, ())

    def disk_lost(
        self, broker: int, partitions: Iterable[tuple[PartitionKey, PartitionImage]], *, wiped: bool = False
    ) -> list[PartitionKey]:
        """Record that a broker has lost the unsynced data of these partitions, or (``wiped``) all data. Returns the
        partitions whose promises are void now."""
        return [key for key, image in partitions if broker in image.isr and self._shorten(key, broker, image, wiped)]

    def _shorten(self, key: PartitionKey, broker: int, image: PartitionImage, wiped: bool) -> bool:
        self._short.setdefault(key, set()).add(broker)
        if wiped:
            self._empty.setdefault(key, set()).add(broker)
        return self._all_short(key, image)

    def changed(self, key: PartitionKey, before: PartitionImage | None, now: PartitionImage) -> str | None:
        """Record a change of a partition's registration. Returns the reason why the promises are void; None if they
        hold."""
        if before is not None and now.leader not in (NO_LEADER, before.leader):
            eligible = (*before.isr, *before.elr)
            moved = set(now.replicas) != set(before.replicas)  # the last step of a reassignment elects a new replica
            if now.leader not in eligible and not moved:
                self._short.pop(key, None)
                self._empty.pop(key, None)
                self._front_lost.add(key)
                return f"broker {now.leader} was elected, and {eligible} were eligible"
        short = self._short.get(key)
        if not short:
            return None
        short.intersection_update(now.isr)
        self._empty.get(key, short).intersection_update(now.isr)
        return f"all of the ISR {now.isr} had lost records" if self._all_short(key, now) else None

    def _all_short(self, key: PartitionKey, image: PartitionImage) -> bool:
        short = self._short.get(key)
        if not short or not image.isr or not set(image.isr) <= short:
            return False
        if self._empty.pop(key, None):
            self._front_lost.add(key)
        del self._short[key]  # from now on their remaining records are the committed ones
        return True
