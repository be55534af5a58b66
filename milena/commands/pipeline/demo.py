"""`milena pipeline demo`: a cluster with data in its tier, to try the jobs."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from functools import partial
from typing import Final

from milena.client.cluster import Cluster
from milena.client.offsets import LATEST, find_offset
from milena.client.producer import Producer
from milena.command_line.errors import UserError
from milena.command_line.options import Values
from milena.commands.client import run
from milena.commands.topic import main as topic_command
from milena.protocol.errors import KafkaError
from milena.up.command import main as up_command

TOPICS: Final = {"orders": 1.2, "clicks": 2.0}
"""The topics, each with the exponent of its distribution of keys: the higher, the more skewed."""
PARTITIONS: Final = 3
SEGMENT: Final = 1 << 20
SPAN_MS: Final = 24 * 3_600_000
"""The period of the records' timestamps in ms: the last day."""
LATEST_TIERED: Final = -5
"""The timestamp in ListOffsets for the last offset in the tier (KIP-1005)."""
PATIENCE: Final = 90
"""Seconds to wait until the records are in the tier."""


def demo(values: Values) -> int:
    """Start the cluster and fill its topics. Returns the exit code. Raises UserError."""
    if values.records < 1:
        raise UserError(f"--records {values.records}: at least 1")
    intervals = ("remote.log.manager.task.interval.ms=1000", "log.retention.check.interval.ms=1000")
    overrides = [word for one in intervals for word in ("--override", one)]
    code = up_command(["--detach", "--dir", values.dir, "--port", str(values.port), *overrides])
    if code:
        return code
    bootstrap = f"127.0.0.1:{values.port}"
    for topic in TOPICS:
        configs = ("remote.storage.enable=true", f"segment.bytes={SEGMENT}", "local.retention.bytes=1")
        words = ["create", topic, "-b", bootstrap, "--partitions", str(PARTITIONS), "--replicas", "3"]
        topic_command([*words, "--if-not-exists", "--quiet", *(word for one in configs for word in ("--config", one))])
    run(bootstrap, partial(_fill, values.records))
    run(bootstrap, _wait)
    folder = "" if values.dir == "milena-demo" else f" --dir {values.dir}"
    print(f"the tier of {values.dir} has data. Next: milena pipeline look{folder}")
    print(f"at the end: milena down --dir {values.dir}")
    return 0


async def _fill(records: int, cluster: Cluster) -> int:
    """Write the records, the same in each run except for their timestamps."""
    chance = random.Random(1)
    end = int(time.time() * 1000)
    producer = Producer(cluster)
    try:
        for topic, exponent in TOPICS.items():
            for at in range(records):
                # The load peaks at noon, and one record of fifty is late by up to a minute.
                share = at / records
                share = 0.4 + (share - 0.4) / 10 if 0.4 < share < 0.6 else share
                late = chance.randrange(60_000) if chance.random() < 0.02 else 0
                key = b"customer-%d" % min(chance.paretovariate(exponent - 0.9), 1e6)
                value = b'{"id":%d,"text":"%s"}' % (at, b"x" * int(chance.expovariate(1 / 300)))
                stamp = end - SPAN_MS + int(share * SPAN_MS) - late
                await producer.enqueue(topic, value, key=key, timestamp=stamp)
                if at % 10_000 == 0:
                    print(f"\r{topic}: {at:,} of {records:,} records\x1b[K", end="", file=sys.stderr, flush=True)
        await producer.flush()
    finally:
        await producer.close()
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return 0


async def _wait(cluster: Cluster) -> int:
    """Wait until each partition has records in the tier, and no more are being copied."""
    before: list[int] = []
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        now = [await _tiered(cluster, topic, number) for topic in TOPICS for number in range(PARTITIONS)]
        if now == before and min(now) >= 0:
            return 0
        before = now
        await asyncio.sleep(3)
    raise UserError(f"the segments were not copied to the tier within {PATIENCE} s: see `milena logs`")


async def _tiered(cluster: Cluster, topic: str, number: int) -> int:
    """Return the last offset of a partition in the tier; -1 if it has none yet."""
    try:
        last = (await find_offset(cluster, topic, number, LATEST_TIERED)).offset
        end = (await find_offset(cluster, topic, number, LATEST)).offset
    except KafkaError:
        return -1
    return last if last >= 0 or end > 0 else 0
