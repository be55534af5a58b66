"""Rules for the members of one group: the generations, assignments and ids in a coordinator's answers (anomalies:
``groups``).

An answer is *established* if its state was written to ``__consumer_offsets`` before it was sent: a member received its
assignment, or could commit. All other state is only in a coordinator's memory, and the next coordinator may not know
it: a generation that was joined and never synced may be used again, with other members. A replaced coordinator that
does not know it continues from its own state; only its own answers must be consistent with each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeAlias

from milena.lab.histories.group_events import (
    AsMember,
    Awaited,
    GroupDelete,
    Join,
    MemberHeartbeat,
    OffsetCommit,
    RequestOutcome,
    Share,
    Sync,
    Trouble,
)
from milena.lab.histories.register_events import EVER

Finding: TypeAlias = tuple[str, str]
"""The name of an anomaly, and a description."""


@dataclass(slots=True)
class PossibleEnds:
    """The times at which the group's state may have been removed, so that its generations start again."""

    ends: list[tuple[float, float]] = field(default_factory=list)
    """The interval in which each end may have happened."""

    def may_end(self, begun: float, ended: float) -> bool:
        """Whether the state may have been removed between two times."""
        return any(start < ended and end > begun for start, end in self.ends)


@dataclass(slots=True)
class Members:
    """The answers to the members of a group. ``settled``: from this time on there is no replaced coordinator that does
    not know it."""

    lives: PossibleEnds
    voids: PossibleEnds
    settled: float = EVER
    joins: list[Join] = field(default_factory=list)
    syncs: list[Sync] = field(default_factory=list)
    heartbeats: list[MemberHeartbeat] = field(default_factory=list)
    commits: list[OffsetCommit] = field(default_factory=list)
    deletes: list[GroupDelete] = field(default_factory=list)
    _synced: list[Sync] = field(default_factory=list, init=False)
    _established: list[AsMember] = field(default_factory=list, init=False)
    _generations: list[int] = field(default_factory=list, init=False)
    _first: list[float] = field(default_factory=list, init=False)
    _instances: dict[str, str] = field(default_factory=dict, init=False)
    """The instance id of each static member, by member id."""

    def violations(self, troubles: Iterable[Trouble]) -> Iterator[Finding]:
        """Yield the violations. Call once, after the last event."""
        self._synced = sorted((sync for sync in self.syncs if _is_ok(sync)), key=lambda sync: sync.ended)
        commits = [one for one in self.commits if _is_ok(one) and one.generation >= 0]
        self._established = [*self._synced, *commits]
        self._index_established()
        self._instances = self._all_instances()
        for commit in commits:
            yield from self._older(commit, "commit of an old generation")
        for answer in self._accepted(*self.joins, *self._synced, *self.heartbeats):
            yield from self._older(answer, "generation goes back")
        yield from self._used_twice()
        yield from self._shared()
        yield from self._never_sent()
        yield from self._two_ids()
        yield from self._survivors()
        yield from self._unanswered(list(troubles))

    def _accepted(self, *answers: AsMember) -> Iterator[AsMember]:
        return filter(_is_ok, answers)

    def _binds(self, earlier: AsMember, answer: AsMember) -> bool:
        """Whether the coordinator that sent ``answer`` must have known the earlier answer."""
        if earlier.ended > answer.begun:
            return False
        return isinstance(answer, OffsetCommit) or answer.begun >= self.settled or earlier.node == answer.node != ""

    def _index_established(self) -> None:
        """Compute for each generation when the first answer of it or of a later one was established."""
        first: dict[int, float] = {}
        for earlier in self._established:
            first[earlier.generation] = min(earlier.ended, first.get(earlier.generation, EVER))
        self._generations = sorted(first)
        self._first = [first[generation] for generation in self._generations]
        for index in range(len(self._first) - 2, -1, -1):
            self._first[index] = min(self._first[index : index + 2])

    def _is_newest(self, answer: AsMember) -> bool:
        """Whether no answer of a later generation was established before ``answer`` began."""
        later = bisect_right(self._generations, answer.generation)
        return later == len(self._first) or self._first[later] > answer.begun

    def _older(self, answer: AsMember, name: str) -> Iterator[Finding]:
        if self._is_newest(answer):
            return
        for earlier in self._established:
            newer = earlier.generation > answer.generation and self._binds(earlier, answer)
            if newer and not self.lives.may_end(earlier.begun, answer.ended):
                yield (
                    name,
                    f"{type(answer).__name__} of {answer.member} in generation {answer.generation} "
                    f"was taken from {answer.begun:.3f} to {answer.ended:.3f}, after generation {earlier.generation}",
                )
                return

    def _all_instances(self) -> dict[str, str]:
        by_key = {answer.member: answer.instance for answer in (*self.joins, *self.syncs) if answer.instance}
        for join in self.joins:
            by_key.update({member: instance for member, instance in join.members if instance})
        return by_key

    def _identity(self, member: str) -> str:
        return self._instances.get(member, member)

    # -- generations

    def _rosters(self) -> dict[int, list[tuple[Sync, frozenset[str]]]]:
        """Return by generation the accepted Syncs of leaders, with the members in the leader's JoinGroup response."""
        members = {}
        for join in self.joins:
            if _is_ok(join) and join.members:
                members[join.member, join.generation] = frozenset(self._identity(member) for member, _ in join.members)
        by_key: dict[int, list[tuple[Sync, frozenset[str]]]] = {}
        for sync in self._synced:
            roster = members.get((sync.member, sync.generation))
            if roster is not None and sync.sent is not None:
                by_key.setdefault(sync.generation, []).append((sync, roster))
        return by_key

    def _used_twice(self) -> Iterator[Finding]:
        rosters = self._rosters()
        for generation, syncs in rosters.items():
            for (one, roster), (other, another) in combinations(syncs, 2):
                if roster != another and not self._apart(one, other):
                    text = f"generation {generation} has {_names(roster)}, and {_names(another)}"
                    yield "generation used twice", text
        for sync in self._synced:
            of_generation = [roster for one, roster in rosters.get(sync.generation, ()) if not self._apart(one, sync)]
            if of_generation and not any(self._identity(sync.member) in roster for roster in of_generation):
                yield (
                    "generation used twice",
                    f"generation {sync.generation} has {_names(of_generation[0])}, and {sync.member}",
                )

    def _apart(self, one: Sync, other: Sync) -> bool:
        """Whether the group's state may have been removed between the two."""
        return self.lives.may_end(min(one.begun, other.begun), max(one.ended, other.ended))

    # -- assignments

    def _shared(self) -> Iterator[Finding]:
        owners: dict[int, list[Sync]] = {}
        for sync in self._synced:
            for other in owners.get(sync.generation, ()):
                both = set(sync.share).intersection(other.share)
                if (
                    both
                    and self._identity(sync.member) != self._identity(other.member)
                    and not self._apart(sync, other)
                ):
                    text = f"{_names(map(str, both))} in generation {sync.generation}: {other.member} and {sync.member}"
                    yield "partition with two owners", text
            if sync.share:
                owners.setdefault(sync.generation, []).append(sync)

    def _never_sent(self) -> Iterator[Finding]:
        sent: dict[int, dict[str, set[Share]]] = {}
        leaders = {(join.member, join.generation): join.leader for join in self.joins}
        known = {join.member for join in self.joins}
        for sync in self.syncs:
            if sync.sent is not None:
                of_generation = sent.setdefault(sync.generation, {})
                for member, share in sync.sent:
                    of_generation.setdefault(self._identity(member), set()).add(tuple(sorted(share)))
        for sync in self._synced:
            shares = sent.get(sync.generation)
            if shares is None and leaders.get((sync.member, sync.generation), "") not in known:
                continue  # the history does not contain the leader
            allowed = set() if shares is None else shares.get(self._identity(sync.member), {()})
            if tuple(sorted(sync.share)) not in allowed:
                text = f"{sync.member} got {_names(map(str, sync.share))} in generation {sync.generation}"
                yield "assignment that was never sent", text

    # -- ids

    def _two_ids(self) -> Iterator[Finding]:
        """Yield accepted answers to a member id that an established newer id of the same instance has replaced."""
        seen: dict[str, tuple[float, float]] = {}
        for join in sorted(self.joins, key=lambda one: one.ended):
            if _is_ok(join) and join.instance:
                seen.setdefault(join.member, (join.begun, join.ended))
        newer: dict[str, list[Sync]] = {}
        for sync in self._synced:
            if sync.instance:
                newer.setdefault(sync.instance, []).append(sync)
        for answer in self._accepted(*self._synced, *self.heartbeats, *self.commits):
            if answer.member not in seen:
                continue
            for earlier in newer.get(answer.instance, ()):
                later = earlier.member in seen and seen[earlier.member][0] >= seen[answer.member][1]
                if later and self._binds(earlier, answer) and not self.voids.may_end(earlier.begun, answer.ended):
                    text = f"{answer.instance} is {earlier.member}, and {answer.member} was taken at {answer.ended:.3f}"
                    yield "two ids of one instance", text
                    break

    def _survivors(self) -> Iterator[Finding]:
        """Yield members that are accepted after the group's deletion, which requires an empty group."""
        for delete in self.deletes:
            if delete.outcome is not RequestOutcome.OK:
                continue
            before = {one.member for one in self._established if one.member and one.ended <= delete.begun}
            for answer in self._accepted(*self._synced, *self.heartbeats, *self.commits):
                bound = isinstance(answer, OffsetCommit) or answer.node == delete.node or answer.begun >= self.settled
                if answer.member not in before or answer.begun < delete.ended or not bound:
                    continue
                if not self.voids.may_end(delete.begun, answer.ended):
                    text = f"it was deleted at {delete.ended:.3f}, and {answer.member} taken at {answer.ended:.3f}"
                    yield "deleted group is back", text
                    break

    # -- answers

    def _unanswered(self, troubles: list[Trouble]) -> Iterator[Finding]:
        awaited: list[Awaited] = [*self.joins, *self.syncs]
        for request in awaited:
            disturbed = any(
                t.node in ("", request.node) and t.begun <= request.ended and t.ended >= request.begun for t in troubles
            )
            if request.silent and not disturbed:
                what = f"{type(request).__name__} of {request.member or 'a new member'} at {request.node}"
                yield "never answered", f"{what} from {request.begun:.3f} on, for {request.ended - request.begun:.1f} s"


def _is_ok(event: AsMember) -> bool:
    return event.outcome is RequestOutcome.OK


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
