"""How a follower finds where its log diverges from the leader's: the four ways that KIP-279 weighs.

Each is an ``Algorithm``: what the follower asks, what the leader answers, what the follower does with the answer, and
the bytes of both for one partition. They are synchronous and work on a follower and a leader as ``Replica`` describes
them; ``comparing.runs`` repeats ask, answer and decide until the follower need not ask again.

The formats of the alternatives exist nowhere but in the KIP. A sequence in a request is counted without its length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol

from milena.broker.follower.truncation import Cut, cut_for
from milena.lab.scenarios.peers.kip101_epoch_ends import kip101_end_offset
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import EpochEnd, LeaderEpochCache

UNKNOWN: Final = "UNKNOWN_OFFSET_FOR_LEADER_EPOCH"
"""The error that both alternatives add: the leader knows none of the epochs that it was asked for."""

EPOCH_REQUEST: Final = Struct(">ii")
"""Partition, leader epoch."""
PAIR: Final = Struct(">iq")
"""Leader epoch, end offset."""
OFFSET_RESPONSE: Final = Struct(">hiq")
"""Error code, partition, end offset (KIP-101)."""
EPOCH_RESPONSE: Final = Struct(">hiiq")
"""Error code, partition, leader epoch, end offset (KIP-279)."""
PARTITION: Final = Struct(">i")


class Replica(Protocol):
    """What the algorithms see of a log."""

    @property
    def epochs(self) -> LeaderEpochCache: ...

    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def high_watermark(self) -> Offset: ...


class Question(NamedTuple):
    """The follower's epochs that it names, oldest first, each with the end offset in its log."""

    epochs: tuple[EpochEnd, ...]

    @property
    def latest(self) -> LeaderEpoch:
        return self.epochs[-1].epoch

    def pairs(self) -> str:
        """As KIP-279 writes them."""
        return ", ".join(f"({epoch}, {end})" for epoch, end in self.epochs)


class Answer(NamedTuple):
    """``epoch`` is None if the format has none; ``end_offset`` is None if the leader has none to tell."""

    epoch: LeaderEpoch | None
    end_offset: Offset | None
    error: str | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return self.error
        epoch = "" if self.epoch is None else f"epoch {self.epoch}, "
        return "nothing" if self.end_offset is None else f"{epoch}end offset {self.end_offset}"


class Algorithm(Protocol):
    """One way to find the end of the common part of two logs."""

    def ask(self, follower: Replica, before: Question | None) -> Question:
        """``before`` is the question of the round before; None in the first round."""
        ...

    def answer(self, leader: Replica, question: Question) -> Answer: ...

    def decide(self, follower: Replica, question: Question, answer: Answer) -> Cut:
        """Where the follower truncates its log, and whether that is all (``agreed``)."""
        ...

    def drawn(self, question: Question) -> str:
        """What of the question is on the wire."""
        ...

    def request_size(self, question: Question) -> int:
        """Bytes for the partition."""
        ...

    def response_size(self) -> int:
        """Bytes for the partition."""
        ...


class Kip101:
    """Before KIP-279: the leader answers with an offset alone, the start of its first epoch above the one asked for."""

    def ask(self, follower: Replica, before: Question | None) -> Question:
        return Question((ends_of(follower)[-1],))

    def answer(self, leader: Replica, question: Question) -> Answer:
        return Answer(None, kip101_end_offset(leader.epochs, leader.log_end_offset, question.latest))

    def decide(self, follower: Replica, question: Question, answer: Answer) -> Cut:
        return _cut(follower, answer)

    def drawn(self, question: Question) -> str:
        return f"epoch {question.latest}"

    def request_size(self, question: Question) -> int:
        return EPOCH_REQUEST.size

    def response_size(self) -> int:
        return OFFSET_RESPONSE.size


class Proposal(Kip101):
    """KIP-279 as accepted: the leader answers with the largest epoch it knows up to the one asked for, and its end.

    Both sides are Milena's own code, ``LeaderEpochCache.end_offset_for`` and ``cut_for``.
    """

    def answer(self, leader: Replica, question: Question) -> Answer:
        end = leader.epochs.end_offset_for(question.latest, log_end=leader.log_end_offset)
        return Answer(None, None) if end is None else Answer(end.epoch, end.offset)

    def response_size(self) -> int:
        return EPOCH_RESPONSE.size


class BackwardsByEpoch(Kip101):
    """Alternative 1: the leader answers for an epoch that it knows, else with an error; then the follower asks for its
    next smaller epoch. After its smallest one, nothing is common."""

    def ask(self, follower: Replica, before: Question | None) -> Question:
        ends = ends_of(follower)
        return Question((ends[-1] if before is None else ends[ends.index(before.epochs[0]) - 1],))

    def answer(self, leader: Replica, question: Question) -> Answer:
        end = dict(ends_of(leader)).get(question.latest)
        return Answer(None, end, UNKNOWN if end is None else None)

    def decide(self, follower: Replica, question: Question, answer: Answer) -> Cut:
        if answer.error is not None:
            return _nothing_in_common(follower, question)
        return _cut(follower, answer._replace(epoch=question.latest))  # the end of the epoch asked for


class AllEpochs(Kip101):
    """Alternative 2: the follower sends the epochs of its log with their end offsets, those above its high watermark
    first, then all. The leader answers for the latest that it knows, with the smaller one of both end offsets."""

    def ask(self, follower: Replica, before: Question | None) -> Question:
        ends = ends_of(follower)
        above = [end for end in ends if end.offset > follower.high_watermark] or ends[-1:]
        return Question(tuple(above if before is None else ends))

    def answer(self, leader: Replica, question: Question) -> Answer:
        known = dict(ends_of(leader))
        for epoch, end in reversed(question.epochs):
            if epoch in known:
                return Answer(None, min(known[epoch], end))
        return Answer(None, None, UNKNOWN)

    def decide(self, follower: Replica, question: Question, answer: Answer) -> Cut:
        if answer.error is not None:
            return _nothing_in_common(follower, question)
        return _cut(follower, answer)

    def drawn(self, question: Question) -> str:
        return question.pairs()

    def request_size(self, question: Question) -> int:
        return PARTITION.size + PAIR.size * len(question.epochs)


ALGORITHMS: Final[Mapping[str, Algorithm]] = {
    "KIP-101": Kip101(),
    "proposal": Proposal(),
    "alternative 1": BackwardsByEpoch(),
    "alternative 2": AllEpochs(),
}
BASELINE: Final = ALGORITHMS["KIP-101"]
"""What the others' bytes are compared with."""


def ends_of(replica: Replica) -> Sequence[EpochEnd]:
    """All epochs of a log with their end offsets, oldest first."""
    entries = replica.epochs.entries
    ends = [*(entry.start for entry in entries[1:]), replica.log_end_offset]
    return [EpochEnd(entry.epoch, end) for entry, end in zip(entries, ends, strict=True)]


def _cut(follower: Replica, answer: Answer) -> Cut:
    return cut_for(
        follower.epochs,
        log_end=follower.log_end_offset,
        fallback=follower.high_watermark,
        leader_epoch=answer.epoch,
        end_offset=answer.end_offset,
    )


def _nothing_in_common(follower: Replica, question: Question) -> Cut:
    """After a question with the oldest epoch the log is emptied; before, it stays and the follower asks on."""
    exhausted = question.epochs[0] == ends_of(follower)[0]
    return Cut(follower.log_start_offset if exhausted else follower.log_end_offset, agreed=exhausted)
