"""Checks replicas: their bounds and roles, and the committed records, which no leader may lack and no replica
change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from milena.broker.replica.partition import Partition
from milena.lab.histories.events import Void
from milena.lab.invariants.broken import demand
from milena.lab.invariants.hosted import Hosted
from milena.lab.invariants.images import RegistrationChange
from milena.lab.invariants.ledger import Ledger
from milena.lab.invariants.promises import Promises
from milena.lab.invariants.remains import remains, whole_until
from milena.lab.invariants.replicas import ObservedReplica, PartitionKey, ReplicaRules
from milena.lab.invariants.tiers import TierRules
from milena.node.metadata.image import TOPIC_RESOURCE, MetadataImage, PartitionImage
from milena.protocol.types import NodeId
from milena.storage.log.flush import SYNCED_FIRST
from milena.storage.log.unified_log import UnifiedLog

FLUSH_EACH = ("flush.messages", "1")
"""The configuration of topics that lose nothing in a power loss."""


class LogWatch:
    """``image`` is the controller's. ``voids`` are the promises that faults have ended."""

    def __init__(
        self,
        hosts: Mapping[int, Hosted],
        image: Callable[[], MetadataImage],
        now: Callable[[], float],
        tier: TierRules,
    ) -> None:
        self._tier = tier
        self._hosts = hosts
        self._image = image
        self._now = now
        self._rules = ReplicaRules()
        self._promises = Promises()
        self._ledgers: dict[PartitionKey, Ledger] = {}
        self.note: Callable[[str], object] = lambda text: None
        """Called when promises end."""
        self._compacted: set[str] = set()
        self._voids: list[Void] = []
        self._written_in_vain: dict[tuple[PartitionKey, str], Void] = {}
        self._elections: dict[PartitionKey, list[tuple[int, int]]] = {}
        """Unclean elections: leader epochs before the first number end at the second, an offset."""

    @property
    def voids(self) -> list[Void]:
        return [*self._voids, *self._written_in_vain.values()]

    @property
    def shaken(self) -> list[tuple[str, int]]:
        """Partitions whose whole ISR had a fault, whether or not a promise has ended."""
        return sorted(map(self._name, self._elections))

    # -- what happens to promises

    def registration_changed(self, change: RegistrationChange) -> None:
        reason = self._promises.changed(change.key, change.before, change.now)
        if reason is not None:
            # A newly elected leader starts with its own log; a dead one is not elected again.
            floor = change.now.leader_epoch if change.now.leader >= 0 else change.now.leader_epoch + 1
            self._void(change.key, floor, reason, change.now.isr)
        if change.before is not None and change.now.leader_epoch >= self._ledger(change.key).floor:
            for number in set(change.now.isr).difference(change.before.isr):
                self._check_joined(change, number)

    def _check_joined(self, change: RegistrationChange, number: int) -> None:
        """A broker was added to an ISR: the registered incarnation must have all committed records. An earlier
        incarnation may have had them (KIP-903). Raises InvariantBroken."""
        hosted, registered = self._hosts.get(number), self._image().brokers.get(NodeId(number))
        if hosted is None or registered is None or not hosted.alive() or hosted.broker_epoch != registered.epoch:
            return
        log, end = self._log_of(number, change.key), self._ledger(change.key).end
        if log is not None:
            where = f"{change.name} of broker {number} (epoch {registered.epoch}), which has joined the ISR"
            demand(log.log_end_offset >= end, where, f"its log ends at {log.log_end_offset}, {end} is committed")

    def disk_lost(self, broker: int, *, wiped: bool) -> None:
        """A broker has lost its unsynced data, or everything."""
        image = self._image()
        name, value = FLUSH_EACH
        lost = [
            ((topic.id, index), partition)
            for topic, index, partition in image.partitions_of(broker)
            if wiped or not (topic.name in SYNCED_FIRST or image.config(TOPIC_RESOURCE, topic.name).get(name) == value)
        ]
        for key in self._promises.disk_lost(broker, lost, wiped=wiped):
            registered = image.topics_by_id[key[0]].partitions[key[1]]
            reason = f"broker {broker}, the last of the ISR, has lost records"
            self._void(key, registered.leader_epoch + 1, reason, registered.isr)

    def _void(self, key: PartitionKey, floor: int, reason: str, isr: Iterable[int]) -> None:
        """A member of the ISR becomes the next leader. Records that all of them have stay; if that is everything, no
        promise ends, except those of a leader that does not know that it was replaced."""
        ledger, (topic, index) = self._ledger(key), self._name(key)
        end, kept = ledger.end, min(self._remains(number, f"{topic}-{index}", ledger) for number in isr)
        ledger.void(floor, kept)
        if not self._promises.has_front(key):
            self._tier.front_lost(key)
        self._elections.setdefault(key, []).append((floor, kept))
        if kept < end:
            self._voids.append(Void((topic, index), self._now(), reason, kept=kept))
            self.note(f"promises for {topic}-{index} are void from offset {kept} on, its log ended at {end}: {reason}")

    def _remains(self, broker: int, name: str, ledger: Ledger) -> int:
        hosted = self._hosts.get(broker)
        if hosted is None:
            return 0
        if self._is_compacted(name.rpartition("-")[0]):
            return min(whole_until(hosted.storage, name), ledger.end)
        return remains(hosted.storage, name, ledger)

    def _is_compacted(self, topic: str) -> bool:
        """Whether the topic is compacted, or ever was."""
        if "compact" in self._image().config(TOPIC_RESOURCE, topic).get("cleanup.policy", ""):
            self._compacted.add(topic)
        return topic in self._compacted

    def _name(self, key: PartitionKey) -> tuple[str, int]:
        topic = self._image().topics_by_id.get(key[0])
        return (str(key[0]) if topic is None else topic.name), key[1]

    def _ledger(self, key: PartitionKey) -> Ledger:
        found = self._ledgers.get(key)
        if found is None:
            found = self._ledgers[key] = Ledger("{}-{}".format(*self._name(key)))
        return found

    # -- replicas

    def look(self, hosted: Hosted, partition: Partition) -> None:
        """Check one partition of a broker. Raises InvariantBroken."""
        replica, log = hosted.replica(partition), partition.log
        if replica is None or log is None:
            return
        elected = self._rules.check(replica)
        registered = self._image().partition_by_id(*replica.key)
        if registered is None:
            return
        ledger = self._ledger(replica.key)
        if replica.leader_epoch < ledger.floor:
            if replica.leads:
                self._note_in_vain(replica)
            return
        if ledger.floor >= 0 and not replica.leads and replica.broker not in registered.isr:
            return  # it has not yet fetched the new leader's records
        if elected and (last := ledger.last_known_in(replica.leader_epoch)) is not None:
            released = self._tier.freed.before.get((log.topic, log.partition), 0)
            deleted = max(replica.log_start, released) > last.last
            last_epoch = last.epoch if deleted else _epoch_at(log, last.last)
            ledger.elect(replica, last=last, log_end=replica.log_end, last_epoch=last_epoch)
        cursor = hosted.cursor(replica.key)
        before = cursor.next_offset
        batches = cursor.read(hosted.storage, log, replica.high_watermark)
        ledger.take(replica, batches, replica.leader_epoch, compacted=self._is_compacted(log.topic))
        if replica.leads and cursor.next_offset != before and replica.leader_epoch == registered.leader_epoch:
            self.check_isr(replica, registered)
        if replica.leads and log.remote_enabled and replica.leader_epoch == registered.leader_epoch:
            self.check_tier(replica, hosted, partition)

    def check_tier(self, replica: ObservedReplica, hosted: Hosted, partition: Partition) -> None:
        """Check that the records below the local log are in the tier. Raises InvariantBroken."""
        if not self._tier.moved(hosted, partition):
            return
        ledger = self._ledger(replica.key)
        for number, other in self._hosts.items():  # a replaced leader that does not know it may delete expired segments
            log = self._log_of(number, replica.key)
            found = other.broker.partitions.find(partition.topic, partition.index)
            if log is not None and found is not None and found.is_leader:
                self._tier.start_seen(f"{replica.name} of broker {number}", replica.key, log, ledger)
        self._tier.look(replica, hosted, partition, ledger)

    def check_isr(self, leader: ObservedReplica, registered: PartitionImage) -> None:
        """Check that all members of the ISR have the records below the leader's high watermark. Raises
        InvariantBroken."""
        end, ledger = leader.high_watermark, self._ledger(leader.key)
        for number in registered.isr:
            log = self._log_of(number, leader.key)
            if log is None or self._promises.is_short(leader.key, number):
                continue
            where = f"{leader.name} of broker {number}, in the ISR of broker {leader.broker}"
            demand(log.log_end_offset >= end, where, f"its log ends at {log.log_end_offset}, {end} is committed")
            epochs = _epoch_at(log, end - 1), ledger.epoch_at(end - 1)
            demand(-1 in epochs or epochs[0] == epochs[1], where, f"epoch {epochs[0]} at {end - 1}, not {epochs[1]}")

    def _log_of(self, broker: int, key: PartitionKey) -> UnifiedLog | None:
        hosted = self._hosts.get(broker)
        name, index = self._name(key)
        found = hosted.broker.partitions.find(name, index) if hosted is not None and hosted.alive() else None
        return found.log if found is not None and found.topic_id == key[0] else None

    def _note_in_vain(self, replica: ObservedReplica) -> None:
        """A replaced leader that does not know it accepts records, which will be lost."""
        text = f"broker {replica.broker} led on in leader epoch {replica.leader_epoch}"
        key, now = (replica.key, text), self._now()
        since = self._written_in_vain[key].since if key in self._written_in_vain else now
        kept = min(kept for floor, kept in self._elections[replica.key] if replica.leader_epoch < floor)
        self._written_in_vain[key] = Void(self._name(replica.key), now, text, since, kept)


def _epoch_at(log: UnifiedLog, offset: int) -> int:
    """The leader epoch of the record at an offset, -1 if there is none."""
    if offset < 0 or offset >= log.log_end_offset:
        return -1
    epochs = [entry.epoch for entry in log.epochs.entries if entry.start <= offset]
    return epochs[-1] if epochs else -1
