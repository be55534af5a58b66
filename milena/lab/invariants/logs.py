"""Checks replicas: their offsets and roles, that leaders have all committed records, and that no replica changes
them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from milena.broker.replica.partition import Partition
from milena.lab.histories.events import Void
from milena.lab.invariants.broken import InvariantBroken, demand
from milena.lab.invariants.images import RegistrationChange
from milena.lab.invariants.ledger import Ledger
from milena.lab.invariants.log_cursor import batches_in
from milena.lab.invariants.observed_broker import ObservedBroker
from milena.lab.invariants.promises import Promises
from milena.lab.invariants.remains import remains, whole_until
from milena.lab.invariants.replicas import ObservedReplica, PartitionKey, ReplicaRules
from milena.lab.invariants.tiers import TierRules
from milena.lab.world.disk import Storage
from milena.node.metadata.image import TOPIC_RESOURCE, MetadataImage, PartitionImage
from milena.protocol.types import NodeId
from milena.storage.files.names import LOG
from milena.storage.log.flush import SYNCED_FIRST
from milena.storage.log.unified_log import UnifiedLog

FLUSH_EACH = ("flush.messages", "1")
"""The configuration of topics that do not lose records in a power loss."""


class LogChecks:
    """The checks of all replicas. ``image`` returns the controller's image. ``voids`` are the promises that faults have
    voided."""

    def __init__(
        self,
        hosts: Mapping[int, ObservedBroker],
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
        """Called with a text when promises become void."""
        self._compacted: set[str] = set()
        self._voids: list[Void] = []
        self._writes_to_replaced_leader: dict[tuple[PartitionKey, str], Void] = {}
        self._elections: dict[PartitionKey, list[tuple[int, int]]] = {}
        """Unclean elections: (floor, kept). Leader epochs below ``floor`` end at the offset ``kept``."""

    @property
    def voids(self) -> list[Void]:
        return [*self._voids, *self._writes_to_replaced_leader.values()]

    @property
    def shaken(self) -> list[tuple[str, int]]:
        """The partitions in which all members of an ISR had a fault, whether or not promises became void."""
        return sorted(map(self._name, self._elections))

    # -- promises

    def registration_changed(self, change: RegistrationChange) -> None:
        """Update the promises after a change of a partition's registration, and check brokers that joined its ISR.
        Raises InvariantBroken."""
        reason = self._promises.changed(change.key, change.before, change.now)
        if reason is not None:
            # A newly elected leader starts with its own log. Without a leader, the next one has a higher epoch.
            floor = change.now.leader_epoch if change.now.leader >= 0 else change.now.leader_epoch + 1
            self._void(change.key, floor, reason, change.now.isr)
        if change.before is not None and change.now.leader_epoch >= self._ledger(change.key).floor:
            for number in set(change.now.isr).difference(change.before.isr):
                self._check_joined(change, number)

    def _check_joined(self, change: RegistrationChange, number: int) -> None:
        """Check that a broker that was added to an ISR has all committed records: the registered incarnation, not an
        earlier one (KIP-903). Raises InvariantBroken."""
        observed, registered = self._hosts.get(number), self._image().brokers.get(NodeId(number))
        if observed is None or registered is None or not observed.alive() or observed.broker_epoch != registered.epoch:
            return
        log, end = self._log_of(number, change.key), self._ledger(change.key).end
        if log is not None:
            where = f"{change.name} of broker {number} (epoch {registered.epoch}), which has joined the ISR"
            demand(log.log_end_offset >= end, where, f"its log ends at {log.log_end_offset}, {end} is committed")

    def disk_lost(self, broker: int, *, wiped: bool) -> None:
        """Update the promises after a broker has lost its unsynced data, or (``wiped``) all data."""
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
        """Void the promises of a partition from the offset on that all members of ``isr`` have: one of them becomes the
        next leader. If they have all committed records, only records of a leader that does not know that it was
        replaced are affected."""
        ledger, (topic, index) = self._ledger(key), self._name(key)
        end, kept = ledger.end, min(self._remaining_until(number, f"{topic}-{index}", ledger) for number in isr)
        ledger.void(floor, kept)
        if not self._promises.has_front(key):
            self._tier.front_lost(key)
        self._elections.setdefault(key, []).append((floor, kept))
        if kept < end:
            self._voids.append(Void((topic, index), self._now(), reason, kept=kept))
            self.note(f"promises for {topic}-{index} are void from offset {kept} on, its log ended at {end}: {reason}")

    def _remaining_until(self, broker: int, name: str, ledger: Ledger) -> int:
        observed = self._hosts.get(broker)
        if observed is None:
            return 0
        if self._is_compacted(name.rpartition("-")[0]):
            return min(whole_until(observed.storage, name), ledger.end)
        return remains(observed.storage, name, ledger)

    def _is_compacted(self, topic: str) -> bool:
        """Whether the topic is compacted, or was earlier."""
        if "compact" in self._image().config(TOPIC_RESOURCE, topic).get("cleanup.policy", ""):
            self._compacted.add(topic)
        return topic in self._compacted

    def _name(self, key: PartitionKey) -> tuple[str, int]:
        topic = self._image().topics_by_id.get(key[0])
        return (str(key[0]) if topic is None else topic.name), key[1]

    def _ledger(self, key: PartitionKey) -> Ledger:
        ledger = self._ledgers.get(key)
        if ledger is None:
            ledger = self._ledgers[key] = Ledger("{}-{}".format(*self._name(key)))
        return ledger

    # -- replicas

    def check(self, observed: ObservedBroker, partition: Partition) -> None:
        """Check one partition of a broker. Raises InvariantBroken."""
        replica, log = observed.replica(partition), partition.log
        if replica is None or log is None:
            return
        elected = self._rules.check(replica)
        registered = self._image().partition_by_id(*replica.key)
        if registered is None:
            return
        ledger = self._ledger(replica.key)
        if replica.leader_epoch < ledger.floor:
            if replica.leads:
                self._note_writes_to_replaced_leader(replica)
            return
        if ledger.floor >= 0 and not replica.leads and replica.broker not in registered.isr:
            return  # it has not yet fetched the new leader's records
        if elected and (last := ledger.last_known_in(replica.leader_epoch)) is not None:
            released = self._tier.freed.before.get((log.topic, log.partition), 0)
            deleted = max(replica.log_start, released) > last.last
            last_epoch = last.epoch if deleted else _epoch_at(log, last.last)
            ledger.elect(replica, last=last, log_end=replica.log_end, last_epoch=last_epoch)
        cursor = observed.cursor(replica.key)
        before = cursor.next_offset
        batches = cursor.read(observed.storage, log, replica.high_watermark)
        ledger.take(replica, batches, replica.leader_epoch, compacted=self._is_compacted(log.topic))
        if replica.leads and cursor.next_offset != before and replica.leader_epoch == registered.leader_epoch:
            self.check_isr(replica, registered)
        if replica.leads and log.remote_enabled and replica.leader_epoch == registered.leader_epoch:
            self.check_tier(replica, observed, partition)

    def check_tier(self, replica: ObservedReplica, observed: ObservedBroker, partition: Partition) -> None:
        """Check that the records below the local log are in the tier. Raises InvariantBroken."""
        if not self._tier.moved(observed, partition):
            return
        ledger = self._ledger(replica.key)
        for number, other in self._hosts.items():  # a replaced leader that does not know it deletes expired segments
            log = self._log_of(number, replica.key)
            found = other.broker.partitions.find(partition.topic, partition.index)
            if log is not None and found is not None and found.is_leader:
                self._tier.start_seen(f"{replica.name} of broker {number}", replica.key, log, ledger)
        self._tier.check(replica, observed, partition, ledger)

    def check_isr(self, leader: ObservedReplica, registered: PartitionImage) -> None:
        """Check that all members of the ISR have the records below the leader's high watermark. Raises
        InvariantBroken."""
        end, ledger = leader.high_watermark, self._ledger(leader.key)
        for number in registered.isr:
            log = self._log_of(number, leader.key)
            if log is None or self._promises.is_short(leader.key, number):
                continue
            where = f"{leader.name} of broker {number}, in the ISR of broker {leader.broker}"
            if log.log_end_offset < end:
                raise InvariantBroken(f"{where}: its log ends at {log.log_end_offset}, {end} is committed")
            epochs = _epoch_at(log, end - 1), ledger.epoch_at(end - 1)
            if epochs[0] != epochs[1] and -1 not in epochs:
                raise InvariantBroken(f"{where}: epoch {epochs[0]} at {end - 1}, not {epochs[1]}")

    def _log_of(self, broker: int, key: PartitionKey) -> UnifiedLog | None:
        observed = self._hosts.get(broker)
        name, index = self._name(key)
        found = observed.broker.partitions.find(name, index) if observed is not None and observed.alive() else None
        return found.log if found is not None and found.topic_id == key[0] else None

    def _note_writes_to_replaced_leader(self, replica: ObservedReplica) -> None:
        """Record that a replaced leader, which does not know that it was replaced, accepts records: they will be
        lost."""
        text = f"broker {replica.broker} still led in leader epoch {replica.leader_epoch}"
        key, now = (replica.key, text), self._now()
        since = self._writes_to_replaced_leader[key].since if key in self._writes_to_replaced_leader else now
        kept = min(kept for floor, kept in self._elections[replica.key] if replica.leader_epoch < floor)
        self._writes_to_replaced_leader[key] = Void(self._name(replica.key), now, text, since, kept)


def _epoch_at(log: UnifiedLog, offset: int) -> int:
    """Return the leader epoch of the record at ``offset``; -1 if there is none."""
    if offset < 0 or offset >= log.log_end_offset:
        return -1
    epochs = [entry.epoch for entry in log.epochs.entries if entry.start <= offset]
    return epochs[-1] if epochs else -1


def check_epochs(where: str, storage: Storage, log: UnifiedLog) -> None:
    """Check that every epoch in the leader epoch cache with offsets in the local log has a batch. Raises
    InvariantBroken."""
    epochs_in_batches = {
        batch.epoch for segment in log.segments for batch in batches_in(storage.files[segment.path(LOG)].data)
    }
    entries = log.epochs.entries
    for number, entry in enumerate(entries):
        end = entries[number + 1].start if number + 1 < len(entries) else log.log_end_offset
        if max(entry.start, log.local_log_start_offset) < end:
            demand(
                entry.epoch in epochs_in_batches,
                where,
                f"epoch {entry.epoch}, from {entry.start} to {end}, has no batch",
            )
