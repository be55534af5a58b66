"""Rules for consumer groups: acknowledged commits are not lost, and coordinators' answers are consistent. Anomalies:

- **lost commit**: an offset was committed, or read, and later there is none, without a deletion or expiry.
- **commit went back**: an older commit is read after a newer one was acknowledged, or read.
- **group offset from nowhere**: an offset is read that no client committed, or whose commit was rejected.
- **deleted offset is back**, **deleted group is back**: an offset is read, or a member accepted, from before a
  deletion.
- **group offsets out of order**: each read is possible, but not all of them together (rules: ``registers``).
- **partition with two owners**: two members of one generation were assigned the same partition.
- **commit of an old generation**: it was accepted after a newer generation had been established.
- **generation goes back**, **generation used twice**: it follows a newer one; it has different members.
- **assignment that was never sent**: a member got another assignment than its leader sent for it.
- **two ids of one instance**: a static member's old id was accepted after its new one had been established.
- **never answered**: a JoinGroup or SyncGroup, over a connection that did not break, of a node without trouble,
  while the machine did not stall.

Only definite violations are reported: a request without an answer may take effect later or never, a replaced
coordinator that does not know it answers from its own state, a deleted topic's offsets are deleted at any time or
never, and commits are void if the promises of the partition of ``__consumer_offsets`` are (``Void``). A commit of
unknown outcome cannot take effect after a newer generation is established.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from milena.lab.histories.events import Event, TopicChange, Void
from milena.lab.histories.faults import Fault
from milena.lab.histories.generations import Members, PossibleEnds
from milena.lab.histories.group_events import (
    NO_OFFSET,
    Expiry,
    GroupDelete,
    Join,
    MemberHeartbeat,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    RequestOutcome,
    Settled,
    Sync,
    Trouble,
)
from milena.lab.histories.machine import MachineStall, MachineStalls
from milena.lab.histories.progress import PATIENCE, Due, LackOfProgress, Stalls, lacks_of_progress
from milena.lab.histories.register_events import EVER, Read, Value, Write
from milena.lab.histories.registers import judge
from milena.protocol.types import TopicPartition

Finding: TypeAlias = tuple[str, str, str]
OFFSETS_TOPIC: Final = "__consumer_offsets"
GRACE_SECONDS: Final = 5.0
"""Seconds after a ``Void`` in which a node may still return its old state."""


class GroupRules:
    """Checks the events of one group."""

    def __init__(self, name: str, patience: float = PATIENCE) -> None:
        self._name = name
        self._patience = patience
        self._voids = PossibleEnds()
        self._members = Members(PossibleEnds(), self._voids)
        self._commits: dict[TopicPartition, list[OffsetCommit]] = {}
        self._fetches: dict[TopicPartition, list[OffsetFetch]] = {}
        self._offset_deletes: list[OffsetDelete] = []
        self._troubles: list[Trouble] = []
        self._expiry = EVER
        self._settled = EVER
        self._deleted_topics: dict[str, list[float]] = {}
        self._recreated_topics: dict[str, float] = {}
        self._attempts = Stalls()
        self._faults: list[Fault] = []
        self._machine = MachineStalls()
        self.not_judged: list[LackOfProgress] = []
        """Lacks of progress that ``violations`` has not reported because the machine stalled."""

    def add(self, event: Event) -> None:
        """Add an event; those of other parts are ignored."""
        match event:
            case Trouble():
                self._troubles.append(event)
            case MachineStall():
                self._machine.add(event)
            case Settled():
                self._settled = min(self._settled, event.at)
            case Expiry():
                self._expiry = min(self._expiry, event.at)
            case Void():
                self._voided(event)
            case TopicChange():
                self._topic_changed(event)
            case Fault():
                self._faults.append(event)
            case Join():
                self._members.joins.append(event)
            case Sync():
                self._members.syncs.append(event)
            case MemberHeartbeat():
                self._members.heartbeats.append(event)
            case OffsetCommit():
                self._members.commits.append(event)
                self._commits.setdefault(event.partition, []).append(event)
                self._attempts.tried(event.begun, event.ended, done=event.outcome is RequestOutcome.OK)
            case OffsetFetch():
                self._fetches.setdefault(event.partition, []).append(event)
            case OffsetDelete():
                self._offset_deletes.append(event)
            case GroupDelete():
                self._members.deletes.append(event)

    def _voided(self, void: Void) -> None:
        if void.partition[0] == OFFSETS_TOPIC:
            begun = void.at if void.since is None else void.since
            self._voids.ends.append((begun, void.at + GRACE_SECONDS))

    def _topic_changed(self, change: TopicChange) -> None:
        """The topic's offsets are deleted some time after the topic. Offsets that are not deleted yet are not returned
        while another topic of the same name exists."""
        if change.outcome is RequestOutcome.FAILED:
            return
        if not change.exists:
            self._deleted_topics.setdefault(change.name, []).append(change.begun)
        elif change.name in self._deleted_topics:
            self._recreated_topics.setdefault(change.name, change.begun)

    def violations(self) -> Iterator[Finding]:
        """Yield the violations: name of the anomaly, group, description. Call once, after the last event."""
        members = self._members
        members.settled = self._settled
        ends = [
            (delete.begun, self._end(delete))
            for delete in members.deletes
            if delete.outcome is not RequestOutcome.FAILED
        ]
        members.lives.ends = [*ends, *self._voids.ends, (self._expiry, EVER)]
        stalls = [Trouble("", begun, ended) for begun, ended in self._machine.spans]
        for anomaly, text in members.violations([*self._troubles, *stalls]):
            yield anomaly, self._name, text
        for partition in dict.fromkeys([*self._commits, *self._fetches]):
            for kind, text in judge(self._writes(partition), self._reads(partition)):
                yield kind.value, self._name, f"{partition[0]}-{partition[1]}: {text}"
        due = Due(self._faults, lambda fault: self._name in fault.groups, self._machine)
        waits = self._attempts.longer_than(self._patience) if self._faults else ()
        for lack in lacks_of_progress(
            "no progress of commits", waits, due, self._patience, "no commit was acknowledged"
        ):
            if lack.stalled:
                self.not_judged.append(lack)
            else:
                yield lack.anomaly, self._name, lack.text

    # -- a committed offset as a register (``registers``)

    def _writes(self, partition: TopicPartition) -> list[Write]:
        found: list[Write] = []
        for commit in self._commits.get(partition, ()):
            found += self._of_commit(commit)
        deletes = [one for one in self._offset_deletes if one.partition == partition]
        all_deletes: list[OffsetDelete | GroupDelete] = [*deletes, *self._members.deletes]
        for delete in all_deletes:
            if delete.outcome is not RequestOutcome.FAILED:
                sure = delete.outcome is RequestOutcome.OK and not self._is_void(delete.begun)
                found.append(Write(None, delete.begun, self._end(delete), sure, delete.node))
        return found

    def _of_commit(self, commit: OffsetCommit) -> Iterator[Write]:
        if commit.outcome is RequestOutcome.FAILED:
            return
        value = (commit.offset, commit.metadata)
        sure = commit.outcome is RequestOutcome.OK and not self._is_void(commit.begun)
        last = min(self._fenced(commit), self._latest_effect(commit.begun))
        ended = commit.ended if sure else last
        yield Write(value, commit.begun, ended, sure, commit.node)
        if commit.retried and sure:
            yield Write(value, commit.begun, last, False)
        if commit.retention is not None:
            # Only the last commit can expire: a later commit comes after the expiry, or has overwritten the offset.
            yield Write(None, commit.begun + commit.retention, ended, False)

    def _fenced(self, commit: OffsetCommit) -> float:
        """Return the time from which a commit cannot take effect, because a newer generation is established."""
        if commit.generation < 0 or self._is_void(commit.begun):
            return EVER
        lives = self._members.lives
        newer = (
            one
            for one in self._members.syncs
            if one.outcome is RequestOutcome.OK and one.generation > commit.generation
        )
        later = (sync.ended for sync in newer if sync.begun >= commit.begun)
        fences = (ended for ended in later if not lives.may_end(commit.begun, ended))
        return min(fences, default=EVER)

    def _end(self, delete: OffsetDelete | GroupDelete) -> float:
        sure = delete.outcome is RequestOutcome.OK and not self._is_void(delete.begun)
        return delete.ended if sure else self._latest_effect(delete.begun)

    def _latest_effect(self, begun: float) -> float:
        """Return the latest time at which a request without an answer takes effect, if it does."""
        return self._settled if begun < self._settled else EVER

    def _is_void(self, begun: float) -> bool:
        return any(begun <= end for _, end in self._voids.ends)

    def _reads(self, partition: TopicPartition) -> list[Read]:
        # Each coordinator deletes the offsets of a deleted topic when it learns of the deletion: once, repeatedly, or
        # never.
        gone = [*self._deleted_topics.get(partition[0], ()), *(begun for begun, _ in self._voids.ends)]
        excuse = min(gone, default=EVER)
        fetches = [fetch for fetch in self._fetches.get(partition, ()) if fetch.outcome is RequestOutcome.OK]
        hidden = self._recreated_topics.get(partition[0], EVER)
        fetches = [fetch for fetch in fetches if fetch.offset != NO_OFFSET or fetch.ended < hidden]
        found = [self._read(_value(fetch), fetch, excuse) for fetch in fetches]
        return found + [self._read(None, delete, excuse) for delete in self._members.deletes if delete.absent]

    def _read(self, value: Value, asked: OffsetFetch | GroupDelete, excuse: float) -> Read:
        if self._is_void(asked.begun):
            return Read(value, asked.begun, EVER, excuse=excuse)  # only the origin of the value is checked
        settled = asked.begun >= self._settled
        return Read(value, asked.begun, asked.ended, asked.node, settled, excuse)


def _value(fetch: OffsetFetch) -> Value:
    return None if fetch.offset == NO_OFFSET else (fetch.offset, fetch.metadata)
