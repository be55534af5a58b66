"""Rules for consumer groups: acknowledged commits stay, and coordinators' answers to members are consistent. Anomalies:

- **lost commit**: an offset was committed, or read, and later there is none, without a deletion or expiry.
- **commit went back**: an older commit is read after a newer one was acknowledged, or read.
- **group offset from nowhere**: an offset is read that nobody committed, or whose commit had been rejected for good.
- **deleted offset is back**, **deleted group is back**: an offset is read, or a member accepted, from before a
  deletion.
- **group offsets out of order**: each read is possible, but not all of them together (rules: ``registers``).
- **partition with two owners**: two members of one generation were assigned the same partition.
- **commit of an old generation**: it was accepted after a newer generation had been established.
- **generation goes back**, **generation used twice**: it follows a newer one; it has different members.
- **assignment that nobody sent**: a member got another assignment than its leader sent for it.
- **two ids of one instance**: a static member's old id was accepted after its new one had been established.
- **never answered**: a JoinGroup or SyncGroup, over a connection that did not break, of a node without trouble,
  while the machine did not stall.

Only certain violations count: a request without an answer may take effect later or never, a deposed coordinator answers
from its own state, a deleted topic's offsets are deleted at some time or never, and promises of ``__consumer_offsets``
are void with its own (``Void``). A commit of unknown outcome cannot take effect after a newer generation is
established.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from milena.lab.histories.events import Event, TopicChange, Void
from milena.lab.histories.faults import Fault
from milena.lab.histories.generations import Lives, Members
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
from milena.lab.histories.progress import PATIENCE, Due, Lack, Stalls, lacks
from milena.lab.histories.register_events import EVER, Read, Value, Write
from milena.lab.histories.registers import judge
from milena.protocol.types import TopicPartition

Found: TypeAlias = tuple[str, str, str]
OFFSETS_TOPIC: Final = "__consumer_offsets"
UNDER_WAY: Final = 5.0
"""Seconds after the end of a promise in which a node may still show its old state."""


class GroupRules:
    """The events of one group."""

    def __init__(self, name: str, patience: float = PATIENCE) -> None:
        self._name = name
        self._patience = patience
        self._voids = Lives()
        self._members = Members(Lives(), self._voids)
        self._commits: dict[TopicPartition, list[OffsetCommit]] = {}
        self._fetches: dict[TopicPartition, list[OffsetFetch]] = {}
        self._offset_deletes: list[OffsetDelete] = []
        self._troubles: list[Trouble] = []
        self._expiry = EVER
        self._settled = EVER
        self._deleted_topics: dict[str, list[float]] = {}
        self._made_again: dict[str, float] = {}
        self._tries = Stalls()
        self._faults: list[Fault] = []
        self._machine = MachineStalls()
        self.not_judged: list[Lack] = []
        """What ``verdict`` left out because the machine stalled."""

    def add(self, event: Event) -> None:
        """Events of other parts are passed over."""
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
                self._tries.tried(event.begun, event.ended, done=event.outcome is RequestOutcome.OK)
            case OffsetFetch():
                self._fetches.setdefault(event.partition, []).append(event)
            case OffsetDelete():
                self._offset_deletes.append(event)
            case GroupDelete():
                self._members.deletes.append(event)

    def _voided(self, void: Void) -> None:
        if void.partition[0] == OFFSETS_TOPIC:
            begun = void.at if void.since is None else void.since
            self._voids.ends.append((begun, void.at + UNDER_WAY))

    def _topic_changed(self, change: TopicChange) -> None:
        """The topic's offsets are deleted some time after the topic. Remaining ones are not shown while another topic
        of the same name exists."""
        if change.outcome is RequestOutcome.FAILED:
            return
        if not change.exists:
            self._deleted_topics.setdefault(change.name, []).append(change.begun)
        elif change.name in self._deleted_topics:
            self._made_again.setdefault(change.name, change.begun)

    def verdict(self) -> Iterator[Found]:
        """(anomaly, group, sentence)."""
        members = self._members
        members.settled = self._settled
        ends = [
            (delete.begun, self._end(delete))
            for delete in members.deletes
            if delete.outcome is not RequestOutcome.FAILED
        ]
        members.lives.ends = [*ends, *self._voids.ends, (self._expiry, EVER)]
        stalls = [Trouble("", begun, ended) for begun, ended in self._machine.spans]
        for anomaly, text in members.verdict([*self._troubles, *stalls]):
            yield anomaly, self._name, text
        for partition in dict.fromkeys([*self._commits, *self._fetches]):
            for wrong, text in judge(self._writes(partition), self._reads(partition)):
                yield wrong.value, self._name, f"{partition[0]}-{partition[1]}: {text}"
        due = Due(self._faults, lambda fault: self._name in fault.groups, self._machine)
        waits = self._tries.longer_than(self._patience) if self._faults else ()
        for lack in lacks("no progress of commits", waits, due, self._patience, "no commit was acknowledged"):
            if lack.stalled:
                self.not_judged.append(lack)
            else:
                yield lack.anomaly, self._name, lack.text

    # -- one offset of a group as a register

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
        last = min(self._fenced(commit), self._unheard_until(commit.begun))
        ended = commit.ended if sure else last
        yield Write(value, commit.begun, ended, sure, commit.node)
        if commit.retried and sure:
            yield Write(value, commit.begun, last, False)
        if commit.retention is not None:
            # only the last commit expires: what follows one comes after its expiry, or has overwritten it
            yield Write(None, commit.begun + commit.retention, ended, False)

    def _fenced(self, commit: OffsetCommit) -> float:
        """The time from which on a commit cannot take effect: a newer generation has its assignments."""
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
        return delete.ended if sure else self._unheard_until(delete.begun)

    def _unheard_until(self, begun: float) -> float:
        """The time at which a request without an answer has taken effect, if ever."""
        return self._settled if begun < self._settled else EVER

    def _is_void(self, begun: float) -> bool:
        return any(begun <= end for _, end in self._voids.ends)

    def _reads(self, partition: TopicPartition) -> list[Read]:
        # each coordinator deletes what it has of a topic when it hears that it is gone: once or more, or never
        gone = [*self._deleted_topics.get(partition[0], ()), *(begun for begun, _ in self._voids.ends)]
        excuse = min(gone, default=EVER)
        fetches = [fetch for fetch in self._fetches.get(partition, ()) if fetch.outcome is RequestOutcome.OK]
        hidden = self._made_again.get(partition[0], EVER)
        fetches = [fetch for fetch in fetches if fetch.offset != NO_OFFSET or fetch.ended < hidden]
        found = [self._read(_value(fetch), fetch, excuse) for fetch in fetches]
        return found + [self._read(None, delete, excuse) for delete in self._members.deletes if delete.absent]

    def _read(self, value: Value, asked: OffsetFetch | GroupDelete, excuse: float) -> Read:
        if self._is_void(asked.begun):
            return Read(value, asked.begun, EVER, excuse=excuse)  # only where it is from is asked
        settled = asked.begun >= self._settled
        return Read(value, asked.begun, asked.ended, asked.node, settled, excuse)


def _value(fetch: OffsetFetch) -> Value:
    return None if fetch.offset == NO_OFFSET else (fetch.offset, fetch.metadata)
