"""Partitions by broker and by log directory, derived from the image for the controller's commands.

Only replay changes it. Entries keep their order of insertion, so that the order of a command's records is
reproducible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar
from uuid import UUID

from milena.node.metadata.image import NO_LEADER, Delta, MetadataImage, PartitionImage, TopicImage
from milena.protocol.types import RESERVED_DIRECTORIES

PartitionKey: TypeAlias = tuple[UUID, int]
"""Topic id and partition number."""

K = TypeVar("K", int, UUID)


class PartitionIndex:
    """Partitions by in-sync replica, by eligible leader replica, by leader and by directory; partitions without a
    leader, not led by their preferred replica, and being reassigned.

    ``changed`` is called with each partition that changes, as it was and as it is.
    """

    __slots__ = (
        "_directories",
        "_elr",
        "_imbalanced",
        "_isr",
        "_known",
        "_leaderless",
        "_leaders",
        "_reassigning",
        "changed",
    )

    def __init__(self) -> None:
        self.changed: Callable[[PartitionImage, PartitionImage], None] | None = None
        self._imbalanced: dict[PartitionKey, None] = {}
        self._reassigning: dict[PartitionKey, None] = {}
        self._known: dict[UUID, dict[int, PartitionImage]] = {}
        self._isr: dict[int, dict[PartitionKey, None]] = {}
        self._elr: dict[int, dict[PartitionKey, None]] = {}
        self._directories: dict[UUID, dict[PartitionKey, None]] = {}
        self._leaders: dict[int, int] = {}
        self._leaderless: dict[PartitionKey, None] = {}

    @classmethod
    def of(cls, image: MetadataImage) -> PartitionIndex:
        """Return the index of a whole image, as after loading a snapshot."""
        index = cls()
        for topic in image.topics.values():
            index._refresh(topic, topic.partitions)
        return index

    def refresh(self, image: MetadataImage, delta: Delta) -> None:
        """Update the index after ``delta`` was applied to the image."""
        for deleted in delta.deleted_topics:
            for number, partition in self._known.pop(deleted.id, {}).items():
                self._replace((deleted.id, number), partition, None)
        for name, changed in delta.topics.items():
            self._refresh(image.topics[name], changed)

    def _refresh(self, topic: TopicImage, numbers: Iterable[int]) -> None:
        known = self._known.setdefault(topic.id, {})
        for number in numbers:
            new = topic.partitions[number]
            self._replace((topic.id, number), known.get(number), new)
            known[number] = new

    def _replace(self, key: PartitionKey, old: PartitionImage | None, new: PartitionImage | None) -> None:
        """A partition was created (``old`` is None), changed, or deleted (``new`` is None)."""
        old_isr = old.isr if old else ()
        new_isr = new.isr if new else ()
        if old_isr != new_isr:
            _move(self._isr, key, old_isr, new_isr)
        old_elr = old.elr if old else ()
        new_elr = new.elr if new else ()
        if old_elr != new_elr:
            _move(self._elr, key, old_elr, new_elr)
        old_directories = old.directories if old else ()
        new_directories = new.directories if new else ()
        if old_directories != new_directories:
            _move(self._directories, key, _assigned(old_directories), _assigned(new_directories))
        self._move_leader(key, old, new)
        _note(self._imbalanced, key, new is not None and not new.led_by_preferred)
        _note(self._reassigning, key, new is not None and new.reassigning)
        if self.changed is not None and old is not None and new is not None:
            self.changed(old, new)

    def _move_leader(self, key: PartitionKey, old: PartitionImage | None, new: PartitionImage | None) -> None:
        before = old.leader if old else None
        after = new.leader if new else None
        if before == after:
            return
        if before == NO_LEADER:
            del self._leaderless[key]
        elif before is not None:
            self._leaders[before] -= 1
        if after == NO_LEADER:
            self._leaderless[key] = None
        elif after is not None:
            self._leaders[after] = self._leaders.get(after, 0) + 1

    def in_isr(self, broker: int) -> list[PartitionKey]:
        return list(self._isr.get(broker, ()))

    def in_elr(self, broker: int) -> list[PartitionKey]:
        return list(self._elr.get(broker, ()))

    def in_directory(self, directory: UUID) -> list[PartitionKey]:
        return list(self._directories.get(directory, ()))

    def imbalanced(self) -> list[PartitionKey]:
        """Return the partitions whose leader is not the preferred replica."""
        return list(self._imbalanced)

    @property
    def imbalanced_count(self) -> int:
        return len(self._imbalanced)

    def reassigning(self) -> list[PartitionKey]:
        return list(self._reassigning)

    def leaderless(self) -> list[PartitionKey]:
        return list(self._leaderless)

    @property
    def leaderless_count(self) -> int:
        return len(self._leaderless)

    def leads(self, broker: int) -> bool:
        return self._leaders.get(broker, 0) > 0


def _assigned(directories: Iterable[UUID]) -> tuple[UUID, ...]:
    return tuple(directory for directory in directories if directory.int >= RESERVED_DIRECTORIES)


def _note(keys: dict[PartitionKey, None], key: PartitionKey, present: bool) -> None:
    if present:
        keys[key] = None
    else:
        keys.pop(key, None)


def _move(owners: dict[K, dict[PartitionKey, None]], key: PartitionKey, old: Iterable[K], new: Iterable[K]) -> None:
    for owner in old:
        kept = owners[owner]
        kept.pop(key, None)
        if not kept:
            del owners[owner]
    for owner in new:
        owners.setdefault(owner, {})[key] = None
