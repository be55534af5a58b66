"""A crash at any step of a follower's beginning in the tier leaves a log that can start, with epochs that are right."""

from __future__ import annotations

import errno
import os

import pytest

from milena.protocol.errors import KafkaError
from milena.protocol.records.batch import BatchView
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.files.producer_snapshot import encode_snapshot
from milena.storage.log import tiering
from milena.storage.state.producer_state import ProducerState
from tests.unit.storage.logs import batch_of
from tests.unit.tiered.segments import epochs
from tests.unit.tiered.tiered_log import Bench, on_bench, open_tiered

EPOCHS = epochs({0: 0, 1: 3, 2: 5, 3: 7})
START = Offset(8)
STEPS = 60


def producers(now: int) -> bytes:
    """A snapshot of one."""
    state = ProducerState()
    state.add_batch(BatchView(batch_of(b"value", timestamp=now, producer=(7, 0, 0))))
    return encode_snapshot(state)


@pytest.mark.parametrize("seed", range(4))
def test_a_power_loss_after_any_operation_of_the_disk(seed: int) -> None:
    begun = set()

    for step in range(STEPS):

        async def scenario(bench: Bench, step: int = step) -> None:
            log, storage = bench.log, bench.world.machine("broker").storage
            for epoch in (0, 0, 0, 1):
                log.append_as_leader(batch_of(b"value"), leader_epoch=LeaderEpoch(epoch))
            log.flush()
            bench.runtime.disk.sync_folder("/")
            left, check = [step], storage.check

            def failing(operation: str, path: str) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), path)
                check(operation, path)

            storage.check = failing  # type: ignore[method-assign]
            try:
                tiering.clear_local(log)
                snapshot = producers(bench.runtime.clock.time_ms())
                tiering.start_in_tier(log, START, log_start=Offset(0), epochs=EPOCHS, snapshot=snapshot)
            except KafkaError:
                assert left[0] < 0
            storage.check = check  # type: ignore[method-assign]
            storage.lose_power()
            again = open_tiered(bench.runtime, log.config, bench.events)
            end = again.log_end_offset
            assert list(again.epochs.entries) == [entry for entry in EPOCHS if entry.start < end]
            if end == START:
                assert [key for key, _ in again.producers] == [7]
                assert tiering.epochs_reach_start(again)
            begun.add(int(end))

        on_bench(scenario, seed=STEPS * seed + step)
    assert begun >= {4, START}
