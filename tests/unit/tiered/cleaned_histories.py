"""Histories of writes, transactions, copies, cleanings, deletions and changes of leader, and a list as their oracle."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from milena.protocol.types import Offset
from milena.tiered.work.tier_cleaner import THREADS
from tests.unit.tiered.cleaned_tier import HOUR_MS, CleanedTier, Kept

KEYS = [b"%d" % number for number in range(5)]
RECORDS = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([None, b"v", b"w" * 40])), min_size=1, max_size=3)
PRODUCERS = (7, 8)
BUFFER = 1 << 20
"""The least."""


@dataclass(frozen=True)
class Write:
    records: list[tuple[bytes, bytes | None]]
    producer: int
    transactional: bool


@dataclass(frozen=True)
class End:
    producer: int
    commit: bool


@dataclass(frozen=True)
class Roll:
    copies: bool


@dataclass(frozen=True)
class Clean:
    wait_ms: int
    memory: int
    """Entries of the map."""


@dataclass(frozen=True)
class Expire:
    locally: bool
    """Whether what is in the tier is deleted from this disk first."""


@dataclass(frozen=True)
class Delete:
    share: float


@dataclass(frozen=True)
class Lead:
    """By another term."""


Step = Write | End | Roll | Clean | Expire | Delete | Lead
WRITES = st.builds(Write, RECORDS, st.sampled_from([0, *PRODUCERS]), st.booleans())
WORK: st.SearchStrategy[Step] = st.one_of(
    *[st.builds(Clean, st.sampled_from([0, HOUR_MS // 2, 2 * HOUR_MS]), st.integers(2, 12))] * 4,
    *[st.builds(Expire, st.booleans())] * 2,
    st.builds(Delete, st.floats(0, 0.6)),
    st.builds(Lead),
)
EPISODE: st.SearchStrategy[list[Step]] = st.tuples(
    st.lists(
        st.one_of(WRITES, WRITES, st.builds(End, st.sampled_from(PRODUCERS), st.booleans())), min_size=2, max_size=6
    ),
    st.builds(Roll, st.sampled_from([True, True, False])),
    WORK,
    WORK,
).map(lambda parts: [*parts[0], *parts[1:]])


@dataclass
class Record:
    """As it was written. ``state``: committed, aborted, or open."""

    kept: Kept
    producer: int
    state: str


@dataclass
class History:
    tier: CleanedTier
    records: list[Record] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    epoch: int = 0

    async def take(self, step: Step) -> None:
        tier = self.tier
        match step:
            case Write():
                self.write(step)
            case End(producer, commit) if producer in self.open:
                tier.end((producer, 0), commit=commit)
                self.open.discard(producer)
                for record in self.records:
                    if record.producer == producer and record.state == "open":
                        record.state = "committed" if commit else "aborted"
            case Roll(copies):
                if tier.log.segments.active.size:
                    tier.log.roll()
                if copies:
                    await tier.copy()
            case Clean(wait_ms, memory):
                await tier.wait(wait_ms / 1000)
                tier.bench.keys["log.cleaner.dedupe.buffer.size"] = BUFFER
                tier.bench.keys[THREADS] = BUFFER // (memory * 24 * 10 // 9 + 48)
                await tier.clean()
            case Expire(locally):
                if locally:
                    tier.log.delete_old_segments(tier.bench.runtime.clock.time_ms())
                await tier.expire()
                await tier.wait(61)
                await tier.expire()
            case Delete(share):
                end = tier.log.high_watermark
                start = tier.log.log_start_offset
                tier.log.increment_log_start(Offset(start + int((end - start) * share)))
            case Lead():
                self.epoch += 1
                tier.lead_again(self.epoch)

    def write(self, step: Write) -> None:
        tier, base = self.tier, int(self.tier.log.log_end_offset)
        transactional = bool(step.producer) and (step.transactional or step.producer in self.open)
        sequence = self.sequences.get(step.producer, 0)
        self.sequences[step.producer] = sequence + len(step.records)
        tier.batch(
            *step.records,
            producer=(step.producer, 0, sequence) if step.producer else None,
            transactional=transactional,
        )
        if transactional:
            self.open.add(step.producer)
        for number, (key, value) in enumerate(step.records):
            state = "open" if transactional else "committed"
            self.records.append(Record(Kept(base + number, key, value), step.producer, state))

    async def check(self) -> None:
        tier = self.tier
        start = int(tier.log.log_start_offset)
        end = max((one.end_offset + 1 for one in tier.served()), default=start)
        found = [one for one in await tier.records() if one.offset >= start]
        written = {record.kept.offset: record for record in self.records}
        assert [one for one in found if written[one.offset].kept != one] == []
        assert found == sorted(found)
        expected: dict[bytes | None, Kept] = {}
        for record in self.records:
            if start <= record.kept.offset < end and record.state == "committed":
                expected[record.kept.key] = record.kept
        offsets = {one.offset for one in found}
        missing = [one for one in expected.values() if one.value is not None and one.offset not in offsets]
        assert missing == []
        last: dict[bytes | None, Kept] = {}
        for one in found:
            if written[one.offset].state == "committed":
                last[one.key] = one
        deleted = {key for key, one in expected.items() if one.value is None}
        assert {key: one.value for key, one in last.items() if key in deleted} == dict.fromkeys(
            deleted & last.keys()
        ), "a deleted key has come back"
        epochs = [batch.leader_epoch for batch in await tier.batches()]
        assert epochs == sorted(epochs)
