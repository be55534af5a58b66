"""Random histories of writes, transactions, deletions, restarts and cleanings, compared with a list of records.

After each step the test compares reads by offset, by time and with read_committed, and the leader epochs and producers
of the log, also after they were rebuilt from the batches.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from milena.protocol.records.batch import BatchView, Codec, iter_batches
from milena.protocol.records.records import iter_records, offset_of, timestamp_of
from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.cleaning.offset_map import ENTRY_SIZE
from milena.storage.files.names import EPOCHS, SNAPSHOT
from milena.storage.log.unified_log import UnifiedLog
from tests.fixtures.properties import examples
from tests.unit.storage.cleaning.cleaned_logs import DAY_MS, KeyedLog
from tests.unit.storage.logs import START_MS, batch_of, marker

KEYS = [*(b"%d" % number for number in range(6)), b"", b"long" * 40]
PRODUCERS = (7, 8)
RECORDS = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([None, b"v", b"w" * 50])), min_size=1, max_size=3)


@dataclass
class Write:
    records: list[tuple[bytes, bytes | None]]
    codec: Codec
    later: int
    """The increase of the leader epoch."""
    time: int
    producer: int
    transactional: bool


@dataclass
class End:
    producer: int
    commit: bool


@dataclass
class Clean:
    keys: int
    """The number of keys that fit into the offset map."""
    wait: int


@dataclass
class Delete:
    share: float
    """The share of the log whose records are deleted."""


@dataclass
class Restart:
    everything: bool
    """Whether all files but the batches are removed."""


STEPS = st.one_of(
    *[
        st.builds(
            Write,
            RECORDS,
            st.sampled_from(list(Codec)),
            st.sampled_from([0, 0, 0, 1, 2]),
            st.integers(0, 40),
            st.sampled_from([0, *PRODUCERS]),
            st.booleans(),
        )
    ]
    * 6,
    st.builds(End, st.sampled_from(PRODUCERS), st.booleans()),
    st.builds(Clean, st.integers(1, 12), st.sampled_from([0, DAY_MS // 2, DAY_MS, 3 * DAY_MS])),
    st.builds(Clean, st.integers(1, 12), st.sampled_from([0, DAY_MS // 2, DAY_MS, 3 * DAY_MS])),
    st.builds(Delete, st.floats(0, 1)),
    st.builds(Restart, st.booleans()),
)


@dataclass(frozen=True)
class Model:
    """A record that the log must have."""

    offset: int
    batch: int
    key: bytes
    value: bytes | None
    time: int
    producer: int
    transactional: bool
    aborted: bool = False
    horizon: int | None = None
    """The delete horizon of its batch."""

    @property
    def seen(self) -> tuple[int, bytes, bytes | None, int]:
        return self.offset, self.key, self.value, self.time


@dataclass
class History:
    keyed: KeyedLog
    by_broker: bool
    records: list[Model] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    epoch: int = 0

    @property
    def log(self) -> UnifiedLog:
        return self.keyed.log

    def do(self, step: object) -> None:
        match step:
            case Write():
                self.write(step)
            case End():
                self.end(step.producer, commit=step.commit)
            case Clean():
                self.keyed.now += step.wait
                self.clean(step.keys)
            case Delete():
                stable = min(self.log.last_stable_offset, self.log.high_watermark)
                self.log.increment_log_start(Offset(int(step.share * stable)))
                self.log.delete_old_segments(self.keyed.now)
            case Restart():
                self.restart(everything=step.everything)
        self.check()

    def write(self, step: Write) -> None:
        self.epoch += step.later
        producer, transactional = step.producer, step.transactional and step.producer > 0
        if producer in self.open:
            transactional = True
        identity = None
        if producer:
            known = self.log.producers.get(producer)
            identity = (producer, 0, 0 if known is None else known.last_sequence + 1)
            if transactional:
                self.open.add(producer)
        self.keyed.now += 1
        self.keyed.folder.clock.now = self.keyed.now
        time = self.keyed.now - step.time
        data = batch_of(
            *(value for _, value in step.records),  # type: ignore[arg-type]
            keys=[key for key, _ in step.records],
            timestamp=time,
            producer=identity,
            codec=step.codec,
            transactional=transactional,
        )
        first = self.log.append_as_leader(data, leader_epoch=LeaderEpoch(self.epoch)).first_offset
        self.log.raise_high_watermark(self.log.log_end_offset)
        for number, (key, value) in enumerate(step.records):
            at = self.keyed.now if self.by_broker else time + number
            self.records.append(Model(first + number, first, key, value, at, producer, transactional))

    def end(self, producer: int, *, commit: bool) -> None:
        if producer not in self.open:
            return
        self.open.remove(producer)
        data = marker((producer, 0), commit=commit, timestamp=self.keyed.now)
        self.log.append_as_leader(data, leader_epoch=LeaderEpoch(self.epoch), origin=Origin.COORDINATOR)
        self.log.raise_high_watermark(self.log.log_end_offset)
        if not commit:
            undecided = self._undecided[producer]
            self.records = [
                replace(one, aborted=True)
                if one.transactional and one.producer == producer and one.offset >= undecided
                else one
                for one in self.records
            ]
        self._undecided[producer] = self.log.log_end_offset

    _undecided: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PRODUCERS, 0))
    """For each producer, the offset after its last marker."""

    def clean(self, keys: int) -> None:
        found = self.keyed.range()
        if found.first_dirty >= found.end:
            return
        bases = [segment.base_offset for segment in self.log.segments]
        self.keyed.clean(memory=keys * 2 * ENTRY_SIZE, load_factor=0.5)
        cleaned_to = self.keyed.dirty or 0
        rewritten = min(base for base in [*bases, self.log.log_end_offset] if base >= cleaned_to)
        last = {
            one.key: one.offset
            for one in self.records
            if found.first_dirty <= one.offset < cleaned_to and not one.aborted
        }
        now, horizon = self.keyed.now, self.keyed.now + DAY_MS

        def stays(one: Model) -> bool:
            if one.offset >= rewritten:
                return True
            if one.aborted:
                return False
            if one.offset >= cleaned_to:
                return True
            due = one.value is None and one.horizon is not None and one.horizon <= now
            return not due and one.offset >= last.get(one.key, -1)

        self.records = [one for one in self.records if stays(one)]
        new = {
            one.batch for one in self.records if one.offset < rewritten and one.value is None and one.horizon is None
        }
        self.records = [replace(one, horizon=horizon) if one.batch in new else one for one in self.records]

    def restart(self, *, everything: bool) -> None:
        log, folder = self.log, self.keyed.folder
        log.close()
        log.flush()
        if everything:
            for name in folder.names():
                if name.endswith((SNAPSHOT, "index")) or name == EPOCHS:
                    folder.disk.remove(f"{folder.path}/{name}")
        start, high = log.log_start_offset, log.high_watermark
        self.keyed.log = folder.open(clean=not everything, log_start=start, recovery_point=0)
        self.log.set_high_watermark(high)

    # Checks after each step

    def check(self) -> None:
        start = self.log.log_start_offset
        left = [one for one in self.records if one.offset >= start]
        self.check_reads(left, start)
        self.check_committed([one for one in left if not one.aborted])
        self.check_times(start)
        self.check_rebuilt()

    def check_reads(self, left: list[Model], start: Offset) -> None:
        found = [
            (offset_of(batch, record), record.key, record.value, timestamp_of(batch, record))
            for batch in self.batches(start)
            if not batch.is_control
            for record in iter_records(batch)
        ]
        assert [one for one in found if one[0] >= start] == [one.seen for one in left]

    def batches(self, start: Offset) -> list[BatchView]:
        """All batches from ``start``, read in small pieces like a consumer."""
        found: list[BatchView] = []
        offset, end = start, self.log.log_end_offset
        while offset < end:
            piece = self.log.read_bytes(offset, 200, upper=end, min_one=True)
            for batch in iter_batches(piece):
                batch.verify_crc()
                assert not found or found[-1].last_offset < batch.base_offset
                found.append(batch)
                offset = batch.next_offset
            assert len(piece)
        return found

    def check_committed(self, expected: list[Model]) -> None:
        """Read like a consumer with isolation.level=read_committed, which filters as Kafka's client."""
        start, stable = self.log.log_start_offset, self.log.last_stable_offset
        coming = sorted(self.log.aborted_transactions(start, stable), key=lambda one: one.first_offset)
        aborted: set[int] = set()
        found = []
        for batch in self.batches(start):
            if batch.base_offset >= stable:
                break
            while coming and coming[0].first_offset <= batch.last_offset:
                aborted.add(coming.pop(0).producer_id)
            if batch.is_control:
                if batch.count and next(iter_records(batch)).key == b"\x00\x00\x00\x00":
                    aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborted):
                found += [offset_of(batch, record) for record in iter_records(batch)]
        assert [one for one in found if one >= start] == [one.offset for one in expected if one.offset < stable]

    def check_times(self, start: Offset) -> None:
        """A search by time considers all records of the log, including markers."""
        left = [
            (timestamp_of(batch, record), offset_of(batch, record))
            for batch in self.batches(start)
            for record in iter_records(batch)
            if offset_of(batch, record) >= start
        ]
        for time in {time for time, _ in left} | {0, self.keyed.now + 1}:
            for asked in (time, time + 1):
                found = self.log.offset_for_timestamp(asked)
                assert (found and found[:2]) == next((one for one in left if one[0] >= asked), None)
        largest = self.log.max_timestamp_offset()
        if left and not start:
            assert largest is not None and largest[:2] == max(left, key=lambda one: (one[0], -one[1]))

    def check_rebuilt(self) -> None:
        """Leader epochs and producers rebuilt from the batches equal those of the log."""
        log = self.log
        state = {
            producer_id: (entry.epoch, entry.last_sequence, entry.last_offset, entry.txn_first_offset)
            for producer_id, entry in log.producers
        }
        end, unstable = log.log_end_offset, log.producers.first_unstable
        epochs = list(log.epochs.entries)
        high = log.high_watermark
        self.restart(everything=True)
        assert self.log.log_end_offset == end
        self.log.set_high_watermark(high)
        rebuilt = {
            producer_id: (entry.epoch, entry.last_sequence, entry.last_offset, entry.txn_first_offset)
            for producer_id, entry in self.log.producers
        }
        for producer_id, one in state.items():
            if one[1] >= 0 and one[2] >= log.segments[0].base_offset:
                assert rebuilt[producer_id] == one
        assert self.log.producers.first_unstable == unstable
        if log.log_start_offset == 0:
            assert list(self.log.epochs.entries) == epochs


@settings(max_examples=examples(25))
@given(st.lists(STEPS, min_size=1, max_size=30), st.booleans(), st.sampled_from([1000, 800]))
def test_a_log_equals_the_model_after_each_step(steps: list[object], by_broker: bool, segment_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as path:
        keyed = KeyedLog.at(
            Path(path),
            segment_bytes=segment_bytes,
            delete_retention_ms=DAY_MS,
            cleanup_policy=("compact", "delete"),
            retention_ms=-1,
            message_timestamp_type="LogAppendTime" if by_broker else "CreateTime",
        )
        history = History(keyed, by_broker)
        for step in steps:
            history.do(step)
        assert keyed.now >= START_MS
