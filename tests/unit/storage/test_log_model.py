"""A log compared with a list of records, through appends, rolls, truncations, restarts, kills and power losses."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from milena.lab.world.disk import SimulatedDisk, Storage
from milena.lab.world.life import Life, SimulatedClock
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.randomness import Randomness
from milena.storage.log.context import LogContext
from milena.storage.log.loading import open_log
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.state.epoch_cache import LeaderEpochCache
from tests.fixtures.properties import examples
from tests.unit.storage.logs import TOPIC_ID, HandClock, append, batch_of, default_config, values_of

PRODUCERS = st.integers(7, 9)
CONFIG = replace(default_config(), segment_bytes=600, index_interval_bytes=150, file_delete_delay_ms=0)


class Known(NamedTuple):
    """A record that the log must have."""

    value: bytes
    epoch: int


class Sent(NamedTuple):
    """A batch that the log must have, or has had below its start. ``sequence`` is that of its first record."""

    base: int
    size: int
    producer: int
    sequence: int


class LogModel(RuleBasedStateMachine):
    """``records`` begin at offset 0. The first ``synced`` survive a power loss; those below ``start`` are deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.records: list[Known] = []
        self.batches: list[Sent] = []
        self.reloaded = 0
        """The number of batches at the last restart or truncation, after which a snapshot may have replaced the
        producer state: it has the last batch of each producer only."""
        self.start = 0
        self.synced = 0
        self.epoch = 0
        self.count = 0
        self.log: UnifiedLog

    @initialize(seed=st.integers(0, 1 << 30))
    def begin(self, seed: int) -> None:
        self.random = Randomness(seed)
        self.storage = Storage(self.random)
        self.storage.folders["/log"] = None
        self.clock = HandClock()
        self.open(clean=True, recovery_point=0)

    def open(self, *, clean: bool, recovery_point: int) -> None:
        life = Life("node")
        disk = SimulatedDisk(self.storage, SimulatedClock(self.loop, life), self.random, life)
        self.log = open_log(
            LogContext(disk, self.clock),
            "/log/topic-0",
            "topic",
            0,
            TOPIC_ID,
            CONFIG,
            recovery_point=Offset(recovery_point),
            log_start_offset=Offset(self.start),
            clean=clean,
        )

    def teardown(self) -> None:
        self.loop.close()

    def next_values(self, count: int) -> list[bytes]:
        self.count += 1
        return [b"%04d-%d" % (self.count, number) * 4 for number in range(count)]

    def note(self, values: list[bytes], producer: int) -> None:
        self.batches.append(Sent(len(self.records), len(values), producer, self.sequence(producer)))
        self.records += [Known(value, self.epoch) for value in values]

    def of(self, producer: int) -> list[Sent]:
        return [batch for batch in self.batches if batch.producer == producer]

    def sequence(self, producer: int) -> int:
        """The next sequence number of a producer."""
        return next((sent.sequence + sent.size for sent in reversed(self.of(producer))), 0)

    def cut(self, end: int) -> None:
        """The log ends at ``end``, and its producers have been loaded again."""
        del self.records[end:]
        self.batches = [batch for batch in self.batches if batch.base + batch.size <= end]
        self.reloaded = len(self.batches)

    @rule(count=st.integers(1, 4), producer=PRODUCERS)
    def lead(self, count: int, producer: int) -> None:
        values = self.next_values(count)
        info = append(self.log, *values, epoch=self.epoch, producer=(producer, 0, self.sequence(producer)))
        assert info.first_offset == len(self.records)
        self.note(values, producer)

    @rule(batches=st.lists(st.tuples(st.integers(1, 3), PRODUCERS), min_size=1, max_size=7), rise=st.integers(0, 1))
    def follow(self, batches: list[tuple[int, int]], rise: int) -> None:
        data = bytearray()
        for count, producer in batches:
            self.epoch += rise
            values = self.next_values(count)
            data += batch_of(
                *values,
                base_offset=Offset(len(self.records)),
                leader_epoch=LeaderEpoch(self.epoch),
                producer=(producer, 0, self.sequence(producer)),
            )
            self.note(values, producer)
        self.log.append_as_follower(memoryview(data))

    @rule()
    def become_leader(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(LeaderEpoch(self.epoch), self.log.log_end_offset)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.synced = len(self.records)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        bases = [batch.base for batch in self.batches if batch.base >= self.start]
        offset = data.draw(st.sampled_from(bases or [len(self.records)]))
        self.log.truncate_to(Offset(offset))
        self.cut(offset)
        self.synced = min(self.synced, offset)
        self.epoch += 1

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log.set_high_watermark(self.log.log_end_offset)
        self.start = data.draw(st.integers(self.start, len(self.records)))
        self.log.increment_log_start(Offset(self.start))
        self.log.delete_old_segments(self.clock.now)

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log.flush()
        self.synced = len(self.records)
        self.open(clean=True, recovery_point=self.log.recovery_point)
        self.cut(len(self.records))

    @rule(fresh=st.booleans())
    def kill(self, fresh: bool) -> None:
        """Kill the process; the checkpoint of the recovery point is up to date (``fresh``) or lost."""
        self.open(clean=False, recovery_point=self.log.recovery_point if fresh else 0)
        assert self.log.log_end_offset == len(self.records)
        self.cut(len(self.records))

    @rule(fresh=st.booleans())
    def lose_power(self, fresh: bool) -> None:
        recovery_point = self.log.recovery_point if fresh else 0
        self.storage.lose_power()
        self.open(clean=False, recovery_point=recovery_point)
        end = self.log.log_end_offset
        assert self.synced <= end <= len(self.records)
        self.cut(end)
        self.synced = len(self.records)
        self.epoch += 1

    @invariant()
    def reads_return_the_written_records(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, len(self.records))
        assert values_of(log, self.start, max_bytes=300) == [record.value for record in self.records[self.start :]]

    @invariant()
    def the_epoch_cache_matches_the_records(self) -> None:
        if not hasattr(self, "log"):
            return
        oracle = LeaderEpochCache()
        for offset in range(self.start, len(self.records)):
            oracle.assign(LeaderEpoch(self.records[offset].epoch), Offset(offset))
        for offset in range(self.start, len(self.records)):
            assert self.log.epochs.epoch_for_offset(Offset(offset)) == oracle.epoch_for_offset(Offset(offset))

    @invariant()
    def the_last_batches_of_each_producer_are_known(self) -> None:
        """All of the last five that were appended since the last restart or truncation, and the last one in any case
        unless it was deleted."""
        if not hasattr(self, "log"):
            return
        for producer in {batch.producer for batch in self.batches}:
            sent = self.of(producer)
            recent = sum(batch.producer == producer for batch in self.batches[self.reloaded :])
            entry = self.log.producers.get(producer)
            kept = [] if entry is None else entry.batches
            stays = sent[-1].base + sent[-1].size > self.start
            assert max(min(recent, 5), stays) <= len(kept) <= 5
            assert [(one.first_offset, one.offset_delta + 1, one.first_sequence) for one in kept] == [
                (batch.base, batch.size, batch.sequence) for batch in sent[len(sent) - len(kept) :]
            ]


LogModel.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=30)
test_log_model = LogModel.TestCase
