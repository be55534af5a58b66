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

PRODUCER = 7
CONFIG = replace(default_config(), segment_bytes=600, index_interval_bytes=150, file_delete_delay_ms=0)


class Known(NamedTuple):
    """A record that the log must have."""

    value: bytes
    epoch: int


class LogModel(RuleBasedStateMachine):
    """``records`` begin at offset 0. The first ``synced`` survive a power loss; those below ``start`` are deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.records: list[Known] = []
        self.batches: list[int] = []
        """The base offsets of batches, at which the log can be truncated."""
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

    def note(self, values: list[bytes], epoch: int) -> None:
        self.batches.append(len(self.records))
        self.records += [Known(value, epoch) for value in values]

    @property
    def sequence(self) -> int:
        return len(self.records)

    @rule(count=st.integers(1, 4))
    def lead(self, count: int) -> None:
        values = self.next_values(count)
        info = append(self.log, *values, epoch=self.epoch, producer=(PRODUCER, 0, self.sequence))
        assert info.first_offset == len(self.records)
        self.note(values, self.epoch)

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=4), rise=st.integers(0, 1))
    def follow(self, counts: list[int], rise: int) -> None:
        data = bytearray()
        for count in counts:
            self.epoch += rise
            values = self.next_values(count)
            data += batch_of(
                *values,
                base_offset=Offset(len(self.records)),
                leader_epoch=LeaderEpoch(self.epoch),
                producer=(PRODUCER, 0, self.sequence),
            )
            self.note(values, self.epoch)
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
        offset = data.draw(st.sampled_from([at for at in self.batches if at >= self.start] or [len(self.records)]))
        self.log.truncate_to(Offset(offset))
        del self.records[offset:]
        self.batches = [at for at in self.batches if at < offset]
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

    @rule(fresh=st.booleans())
    def kill(self, fresh: bool) -> None:
        """Kill the process; the checkpoint of the recovery point is up to date (``fresh``) or lost."""
        self.open(clean=False, recovery_point=self.log.recovery_point if fresh else 0)
        assert self.log.log_end_offset == len(self.records)

    @rule(fresh=st.booleans())
    def lose_power(self, fresh: bool) -> None:
        recovery_point = self.log.recovery_point if fresh else 0
        self.storage.lose_power()
        self.open(clean=False, recovery_point=recovery_point)
        end = self.log.log_end_offset
        assert self.synced <= end <= len(self.records)
        del self.records[end:]
        self.batches = [at for at in self.batches if at < end]
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
    def the_producer_state_matches_the_last_record(self) -> None:
        if not hasattr(self, "log") or len(self.records) <= self.start:
            return
        entry = self.log.producers.get(PRODUCER)
        assert entry is not None
        assert (entry.last_sequence, entry.last_offset) == (len(self.records) - 1, len(self.records) - 1)


LogModel.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=30)
test_log_model = LogModel.TestCase
