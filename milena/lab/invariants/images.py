"""Rules for metadata images: they are equal at equal offsets, epochs do not decrease, and a new incarnation of a broker
is not in an ISR (KIP-903).

The controller's image is the reference. Its entries are frozen and replaced, so changes are detected by identity. The
history of each entry determines the content of a broker's image at its own offset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from milena.lab.invariants.broken import InvariantBroken, demand
from milena.lab.invariants.replicas import PartitionKey
from milena.node.metadata.image import BrokerImage, MetadataImage, PartitionImage

Key: TypeAlias = tuple[str, Any]
"""The kind of an entry, and its key among the entries of that kind."""
PARTITION = "partition"
BROKER = "broker"
CONTROLLER: Final = "the controller"


class Version(NamedTuple):
    """The value of an entry from some offset in ``(after, upto]`` on; None if it was deleted."""

    after: int
    upto: int
    entry: object


class RegistrationChange(NamedTuple):
    """A partition's registration was created or changed."""

    key: PartitionKey
    name: str
    before: PartitionImage | None
    now: PartitionImage


class ImageRules:
    """Checks images. Call ``controller_moved`` whenever the controller's image may have changed, then ``check`` for
    each broker."""

    def __init__(self) -> None:
        self.offset = -1
        self._versions: dict[Key, list[Version]] = {}
        self._seen: dict[str, dict[Key, object]] = {}

    def controller_restarted(self, start: int, committed: int = 0, image: MetadataImage | None = None) -> None:
        """Record that a new controller writes from offset ``start`` on; records of its predecessor from there on were
        not committed. Records below ``committed`` were committed. ``image`` is the new controller's. Raises
        InvariantBroken."""
        demand(start >= committed, CONTROLLER, f"it begins at offset {start}, and {committed} was committed")
        uncertain = {key for key, versions in self._versions.items() if versions and versions[-1].upto >= start}
        for versions in self._versions.values():
            while versions and versions[-1].after + 1 >= start:
                versions.pop()
        if image is not None and self.offset >= 0:
            self._compare_loaded(image, uncertain)
        self.offset = min(self.offset, start - 1)

    def _compare_loaded(self, image: MetadataImage, uncertain: Collection[Key]) -> None:
        """Check that a controller's first image is that of its predecessor, except entries with uncommitted changes."""
        loaded: dict[Key, object] = {key: entry for key, _, entry in _entries(image)}
        for key in dict.fromkeys((*self._versions, *loaded)):
            versions = self._versions.get(key)
            before = versions[-1].entry if versions else None
            demand(
                loaded.get(key) == before or key in uncertain,
                CONTROLLER,
                f"it has read {loaded.get(key)} for {key}; its predecessor had {before}",
            )

    def controller_moved(self, image: MetadataImage) -> list[RegistrationChange]:
        """Return the changes of partitions since the last call. Raises InvariantBroken."""
        changes: list[RegistrationChange] = []
        incarnations: list[BrokerImage] = []
        for key, name, entry in _entries(image):
            versions = self._versions.setdefault(key, [])
            before = versions[-1].entry if versions else None
            if entry is before or entry == before:
                continue
            versions.append(Version(self.offset, image.offset, entry))
            if isinstance(entry, PartitionImage):
                known = before if isinstance(before, PartitionImage) else None
                _check_partition(name, known, entry)
                changes.append(RegistrationChange(key[1], name, known, entry))
            elif isinstance(entry, BrokerImage) and _is_new(before, entry):
                incarnations.append(entry)
        self._note_gone(image)
        for broker in incarnations:
            _check_incarnation(image, broker)
        self.offset = image.offset
        return changes

    def _note_gone(self, image: MetadataImage) -> None:
        present = {key for key, _, _ in _entries(image)}
        for key, versions in self._versions.items():
            if key not in present and versions and versions[-1].entry is not None:
                versions.append(Version(self.offset, image.offset, None))

    def check(self, who: str, seen: dict[Key, object], image: MetadataImage) -> None:
        """Check a broker's image. ``seen`` has the entries of its last one. Raises InvariantBroken."""
        demand(image.offset <= self.offset, who, f"metadata up to {image.offset}, the controller's to {self.offset}")
        entries: dict[Key, object] = {}
        for key, name, entry in _entries(image):
            entries[key] = entry
            if seen.get(key) is not entry:
                self._compare(f"{who}: {name}", key, entry, image.offset)
        for key in seen:
            if key not in entries:
                self._compare(f"{who}: {key}", key, None, image.offset)
        seen.clear()
        seen.update(entries)

    def check_all(self, who: str, image: MetadataImage) -> None:
        """Check the whole image of a broker, including missing entries. Raises InvariantBroken."""
        self.check(who, dict.fromkeys(self._versions), image)

    def _compare(self, where: str, key: Key, entry: object, offset: int) -> None:
        expected: object = None
        for version in reversed(self._versions.get(key, [])):
            if version.after >= offset:
                continue
            if version.entry == entry:
                return
            if version.upto <= offset:
                expected = version.entry
                break
        if expected is not None or entry is not None:
            raise InvariantBroken(f"{where} is {entry} at offset {offset}, the controller had {expected}")


def _entries(image: MetadataImage) -> Iterator[tuple[Key, str, object]]:
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            yield (PARTITION, (topic.id, number)), f"{topic.name}-{number}", partition
    for broker in image.brokers.values():
        yield (BROKER, broker.id), f"registration of broker {broker.id}", broker
    for resource, config in image.configs.items():
        yield ("config", resource), f"configuration of {resource[1]}", tuple(sorted(config.items()))


def _is_new(before: object, now: BrokerImage) -> bool:
    if not isinstance(before, BrokerImage):
        return True
    demand(before.epoch <= now.epoch, f"broker {now.id}", f"broker epoch {now.epoch} after {before.epoch}")
    return before.epoch != now.epoch


def _check_partition(name: str, before: PartitionImage | None, now: PartitionImage) -> None:
    demand(set(now.isr) <= set(now.replicas), name, f"ISR {now.isr} of replicas {now.replicas}")
    if before is not None:
        epochs, versions = (before.leader_epoch, now.leader_epoch), (before.partition_epoch, now.partition_epoch)
        demand(epochs[0] <= epochs[1], name, f"leader epoch {epochs[1]} after {epochs[0]}")
        demand(versions[0] < versions[1], name, f"partition epoch {versions[1]} after {versions[0]}, changed")
        demand(
            before.leader == now.leader or now.leader < 0 or epochs[0] < epochs[1],
            name,
            f"a new leader {now.leader} in leader epoch {now.leader_epoch}",
        )


def _check_incarnation(image: MetadataImage, broker: BrokerImage) -> None:
    """Check that no ISR contains an earlier incarnation of the broker, except as the only member (KIP-903)."""
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            demand(
                broker.id not in partition.isr or len(partition.isr) == 1 or partition.partition_epoch == 0,
                f"{topic.name}-{number}",
                f"broker {broker.id} has registered again (epoch {broker.epoch}) and is in the ISR {partition.isr}",
            )
