"""How a follower finds the offset at which its log diverges from the leader's: the four algorithms of KIP-279.

Each is an ``Algorithm``: the follower's question, the leader's answer, the follower's decision, and the bytes of both
messages for one partition. They are synchronous and see a follower and a leader as ``Replica``; ``comparing.runs``
repeats ask, answer and decide until the follower need not ask again.

The formats of the alternatives exist only in the KIP. The length of an array in a request is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol

from milena.broker.follower.truncation import Truncation, truncation_for
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import EpochEnd, LeaderEpochCache

UNKNOWN: Final = "UNKNOWN_OFFSET_FOR_LEADER_EPOCH"
"""The error in both alternatives if the leader knows none of the requested epochs."""

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
    """The part of a log that the algorithms use."""

    @property
    def epochs(self) -> LeaderEpochCache: ...

    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def high_watermark(self) -> Offset: ...


class Question(NamedTuple):
    """The epochs in the follower's request, oldest first, each with its end offset in the follower's log."""

    epochs: tuple[EpochEnd, ...]

    @property
    def latest(self) -> LeaderEpoch:
        return self.epochs[-1].epoch

    def pairs(self) -> str:
        """Return the pairs as KIP-279 writes them."""
        return ", ".join(f"({epoch}, {end})" for epoch, end in self.epochs)


class Answer(NamedTuple):
    """``epoch`` is None if the format has none; ``end_offset`` is None if the leader does not know it."""

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
        """Return the next question. ``before``: the question of the previous round; None in the first round."""
        ...

    def answer(self, leader: Replica, question: Question) -> Answer: ...

    def decide(self, follower: Replica, question: Question, answer: Answer) -> Truncation:
        """Return where the follower truncates its log, and whether it is done (``agreed``)."""
        ...

    def drawn(self, question: Question) -> str:
        """Return the part of the question that is on the wire, as text."""
        ...

    def request_size(self, question: Question) -> int:
        """Return the size of the request for the partition in bytes."""
        ...

    def response_size(self) -> int:
        """Return the size of the response for the partition in bytes."""
        ...


class Kip101:
    """Before KIP-279: the answer is only an offset, the start of the leader's first epoch above the requested one."""

    def ask(self, follower: Replica, before: Question | None) -> Question:
        return Question((ends_of(follower)[-1],))

    def answer(self, leader: Replica, question: Question) -> Answer:
        return Answer(None, kip101_end_offset(leader.epochs, leader.log_end_offset, question.latest))

    def decide(self, follower: Replica, question: Question, answer: Answer) -> Truncation:
        return _cut(follower, answer)

    def drawn(self, question: Question) -> str:
        return f"epoch {question.latest}"

    def request_size(self, question: Question) -> int:
        return EPOCH_REQUEST.size

    def response_size(self) -> int:
        return OFFSET_RESPONSE.size


class Proposal(Kip101):
    """KIP-279 as accepted: the answer is the leader's largest epoch up to the requested one, and its end offset.

    Both sides are Milena's own code, ``LeaderEpochCache.end_offset_for`` and ``truncation_for``.
    """

    def answer(self, leader: Replica, question: Question) -> Answer:
        end = leader.epochs.end_offset_for(question.latest, log_end=leader.log_end_offset)
        return Answer(None, None) if end is None else Answer(end.epoch, end.offset)

    def response_size(self) -> int:
        return EPOCH_RESPONSE.size


class BackwardsByEpoch(Kip101):
    """Alternative 1: the leader answers for an epoch that it knows, else with an error; then the follower asks for its
    next smaller epoch. After its smallest one, the logs have nothing in common."""

    def ask(self, follower: Replica, before: Question | None) -> Question:
        ends = ends_of(follower)
        return Question((ends[-1] if before is None else ends[ends.index(before.epochs[0]) - 1],))

    def answer(self, leader: Replica, question: Question) -> Answer:
        end = dict(ends_of(leader)).get(question.latest)
        return Answer(None, end, UNKNOWN if end is None else None)

    def decide(self, follower: Replica, question: Question, answer: Answer) -> Truncation:
        if answer.error is not None:
            return _nothing_in_common(follower, question)
        return _cut(follower, answer._replace(epoch=question.latest))  # the end of the requested epoch


class AllEpochs(Kip101):
    """Alternative 2: the follower sends the epochs of its log with their end offsets, first those above its high
    watermark, then all. The leader answers for the latest that it knows, with the smaller of both end offsets."""

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

    def decide(self, follower: Replica, question: Question, answer: Answer) -> Truncation:
        if answer.error is not None:
            return _nothing_in_common(follower, question)
        return _cut(follower, answer)

    def drawn(self, question: Question) -> str:
        return question.pairs()

    def request_size(self, question: Question) -> int:
        return PARTITION.size + PAIR.size * len(question.epochs)


class EpochOfHighWatermark(Kip101):
    """The first idea for clean elections alone: the follower asks for the epoch of its last committed record, drops all
    later epochs, and truncates to the leader's last offset in that epoch. If the leader does not know the epoch, the
    follower truncates to its high watermark."""

    def ask(self, follower: Replica, before: Question | None) -> Question:
        ends = ends_of(follower)
        return Question((next((end for end in ends if end.offset >= follower.high_watermark), ends[-1]),))

    def answer(self, leader: Replica, question: Question) -> Answer:
        end = dict(ends_of(leader)).get(question.latest)
        return Answer(None, end, UNKNOWN if end is None else None)

    def decide(self, follower: Replica, question: Question, answer: Answer) -> Truncation:
        if answer.error is not None or answer.end_offset is None:
            return Truncation(min(follower.high_watermark, follower.log_end_offset), agreed=True)
        return Truncation(min(dict(ends_of(follower))[question.latest], answer.end_offset), agreed=True)


ALGORITHMS: Final[Mapping[str, Algorithm]] = {
    "KIP-101": Kip101(),
    "proposal": Proposal(),
    "alternative 1": BackwardsByEpoch(),
    "alternative 2": AllEpochs(),
}
CLEAN_ONLY: Final = EpochOfHighWatermark()
BASELINE: Final = ALGORITHMS["KIP-101"]
"""The algorithm with which the others' sizes are compared."""


def kip101_end_offset(epochs: LeaderEpochCache, log_end: Offset, asked: LeaderEpoch) -> Offset | None:
    """Return the log end offset for the latest epoch, else the start of the first epoch above the requested one."""
    if asked == epochs.latest:
        return log_end
    above = epochs.next_entry(asked)
    return None if above is None else above.start


def ends_of(replica: Replica) -> Sequence[EpochEnd]:
    """Return all epochs of a log with their end offsets, oldest first."""
    entries = replica.epochs.entries
    ends = [*(entry.start for entry in entries[1:]), replica.log_end_offset]
    return [EpochEnd(entry.epoch, end) for entry, end in zip(entries, ends, strict=True)]


def _cut(follower: Replica, answer: Answer) -> Truncation:
    return truncation_for(
        follower.epochs,
        log_end=follower.log_end_offset,
        fallback=follower.high_watermark,
        leader_epoch=answer.epoch,
        end_offset=answer.end_offset,
    )


def _nothing_in_common(follower: Replica, question: Question) -> Truncation:
    """After a question with the oldest epoch the log is emptied; before that the follower asks again."""
    exhausted = question.epochs[0] == ends_of(follower)[0]
    return Truncation(follower.log_start_offset if exhausted else follower.log_end_offset, agreed=exhausted)
