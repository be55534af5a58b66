"""The offsets of transactions: TxnOffsetCommit, markers, loading."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from milena.broker.groups.loading import Loader
from milena.protocol.cooperative import run_now
from milena.protocol.errors import ErrorCode
from tests.unit.broker.fixtures import Bench
from tests.unit.broker.groups.log_oracle import pending_in, replay, unstable_in
from tests.unit.broker.groups.served import Groups

PARTITIONS = (0, 1)
STEPS = 120


class RandomSteps:
    """Random requests and markers for one group, and the log's followers, by seed."""

    def __init__(self, seed: int) -> None:
        self.bench = Bench(Path("unused"))
        self.groups = Groups(self.bench)
        self.random = Random(seed)
        self.offset = 0

    def step(self) -> None:
        groups, log, random = self.groups, self.groups.log, self.random
        self.offset += 1
        partitions = random.choice([(0,), (1,), (0, 1)])
        producer = random.randint(1, 3)
        match random.choices(range(10), weights=(6, 12, 10, 1, 2, 2, 3, 4, 1, 1))[0]:
            case 0:
                groups.committing(9, *partitions, offset=self.offset)
            case 1:
                groups.sending(5, *partitions, producer=producer, offset=self.offset)
            case 2:
                groups.end(producer, commit=random.random() < 0.7)
            case 3:
                groups.deleting()
            case 4:
                groups.deleting_offset(partitions[0])
            case 5:
                groups.clock.advance(60)
                list(groups.shard.expire_offsets(random.choice([0, 60_000])))
            case 6:
                log.hold = not log.hold
            case 7:
                log.commit(random.randint(1, 2))
            case 8:
                log.error = random.choice([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS])
            case _:
                log.give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                groups.reload()

    def check(self) -> None:
        log, shard = self.groups.log, self.groups.shard
        written, committed = replay(log.batches), replay(log.batches[: log.high_watermark])
        in_memory = {
            (name, key[1]): offset.offset for name, one in shard.groups.items() for key, offset in one.offsets.items()
        }
        assert in_memory == written.offsets
        assert pending_in(shard._transactional) == written.pending
        with_offsets = {key[0] for key in [*written.offsets, *written.pending]}
        assert with_offsets <= shard.groups.keys()
        seen = {("g", index): self.groups.fetched(index=index) for index in PARTITIONS}
        assert {key: offset for key, offset in seen.items() if offset >= 0} == committed.offsets
        unstable = shard.unstable("g")
        found = {index for index in PARTITIONS if unstable is not None and unstable(("t", index))}
        assert found == unstable_in(log.batches, log.high_watermark)
        loader = Loader(shard.new_group)
        for piece in log.pieces():
            run_now(loader.apply(piece))
        loaded = run_now(loader.finish(self.groups.clock.time_ms()))
        assert pending_in(loader.transactional) == written.pending
        assert {name: one.offsets for name, one in loaded.items()} == {
            name: shard.groups[name].offsets for name in with_offsets
        }


@pytest.mark.parametrize("seed", range(30))
def test_memory_is_what_loading_the_log_gives(seed: int) -> None:
    steps = RandomSteps(seed)
    try:
        for _ in range(STEPS):
            steps.step()
            steps.check()
    finally:
        steps.bench.close()
