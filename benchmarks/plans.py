"""What planning costs where the tier has very many segments: ``python -m benchmarks.plans [SEGMENTS] [PARTITIONS]``.

A broker's directory is made, with the metadata topic of so many segments, one batch for each event as brokers write
them, and replicas that tell leader epochs; no object of the tier is there. Then processes of their own plan as Spark's
driver does: a query of all topics, one of a tenth of them, and a stream, whose next trigger comes after a hundredth of
the partitions got another segment. Pickling is what Spark does to the tasks that are planned.
"""

from __future__ import annotations

import json
import pickle
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory
from typing import Final
from uuid import UUID

from milena.protocol.records.batch import pack_batch
from milena.protocol.records.varints import write_varint
from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.storage.files.checkpoints import encode_epochs, encode_partition_metadata
from milena.storage.files.meta_properties import MetaProperties, encode_meta_properties
from milena.storage.files.names import EPOCHS, META_PROPERTIES, PARTITION_METADATA
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC, metadata_partition
from milena.tiered.metadata.partition_names import partition_bytes
from milena.tiered.metadata.serialization import serialize
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
    TopicIdPartition,
)

TOPICS: Final = 10
METADATA_PARTITIONS: Final = 50
RECORDS: Final = 1000
"""Of a segment."""
SIZE: Final = 100 << 20
"""Bytes of a segment."""
PER_EPOCH: Final = 100
"""Segments of a leader epoch."""
TIME: Final = 1_700_000_000_000
LOG: Final = f"{0:020d}.log"


def main(words: list[str]) -> int:
    if words[:1] == ["measure"]:
        print(json.dumps(MEASURES[words[1]](Path(words[2]))))
        return 0
    segments, partitions = (int(word) for word in (*words, *("100000", "100")[len(words) :]))
    each = segments // partitions
    with TemporaryDirectory(prefix="bench-plans-") as name:
        folder = Path(name)
        made = Made(folder, partitions)
        for number in range(each):
            made.announce(number, range(partitions))
        made.replicas(each)
        size = made.flush(folder / "data")
        made.announce(each, range(0, partitions, 100))
        made.flush(folder / "later")
        print(f"{each * partitions} segments in {partitions} partitions; the metadata topic has {size >> 20} MiB")
        for measure in MEASURES:
            command = [sys.executable, "-m", "benchmarks.plans", "measure", measure, name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(done.stderr[-2000:])
            for what, figures in json.loads(done.stdout.splitlines()[-1]).items():
                print(f"  {what}: {figures}")
    return 0


class Made:
    """Writes what a broker that has all replicas would have written."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self._data = folder / "data"
        self._partitions = [
            TopicIdPartition(UUID(int=(number % TOPICS + 1) << 70 | 7), f"topic-{number % TOPICS}", number // TOPICS)
            for number in range(partitions)
        ]
        self._logs: dict[int, bytearray] = {}
        self._next = dict.fromkeys(range(METADATA_PARTITIONS), 0)
        (folder / "tier").mkdir()
        self._data.mkdir()
        meta = MetaProperties("AAAAAAAAAAAAAAAAAAAAAA", NodeId(1), None)
        (self._data / META_PROPERTIES).write_bytes(encode_meta_properties(meta))

    def announce(self, number: int, partitions: range) -> None:
        """Segment ``number`` of each of these partitions."""
        states = RemoteLogSegmentState
        epoch, start = LeaderEpoch(number // PER_EPOCH), Offset(number * RECORDS)
        for index in partitions:
            partition = self._partitions[index]
            one = RemoteLogSegmentMetadata(
                RemoteLogSegmentId(
                    partition, UUID(int=((number << 20 | index) + 1) * 0x9E3779B97F4A7C15F39CC060 % (1 << 128))
                ),
                start,
                Offset(start + RECORDS - 1),
                NodeId(1),
                TIME + number,
                TIME + number,
                (EpochEntry(epoch, start),),
                SIZE,
                None,
                states.COPY_SEGMENT_STARTED,
                True,
                epoch,
            )
            update = RemoteLogSegmentUpdate(
                one.segment_id, NodeId(1), TIME + number, None, states.COPY_SEGMENT_FINISHED, epoch
            )
            self._append(partition, _Bytes.of_segment(one))
            self._append(partition, _Bytes.of_update(update))
            if number == index == 0:
                assert _Bytes.of_segment(one) == serialize(one) and _Bytes.of_update(update) == serialize(update)

    def _append(self, partition: TopicIdPartition, value: bytes) -> None:
        place = _place(partition)
        body, record = bytearray(b"\0\0\0\1"), bytearray()
        write_varint(body, len(value))
        body += value + b"\0"
        write_varint(record, len(body))
        self._logs.setdefault(place, bytearray()).extend(
            pack_batch(
                record + body,
                count=1,
                last_offset_delta=0,
                base_timestamp=TIME,
                max_timestamp=TIME,
                base_offset=Offset(self._next[place]),
                leader_epoch=LeaderEpoch(0),
            )
        )
        self._next[place] += 1

    def replicas(self, numbers: int) -> None:
        """Of logs with so many segments in the tier, and nothing behind them."""
        epochs = [
            EpochEntry(LeaderEpoch(at // PER_EPOCH), Offset(at * RECORDS)) for at in range(0, numbers + 1, PER_EPOCH)
        ]
        for one in self._partitions:
            folder = self._data / f"{one.topic}-{one.partition}"
            folder.mkdir()
            (folder / PARTITION_METADATA).write_bytes(encode_partition_metadata(one.topic_id))
            (folder / EPOCHS).write_bytes(encode_epochs(epochs))
            (folder / f"{numbers * RECORDS:020d}.log").touch()

    def flush(self, folder: Path) -> int:
        """Write what has come; returns the bytes."""
        for place, log in self._logs.items():
            path = folder / f"{REMOTE_LOG_METADATA_TOPIC}-{place}" / LOG
            path.parent.mkdir(parents=True)
            path.write_bytes(log)
        written = sum(map(len, self._logs.values()))
        self._logs.clear()
        return written


class _Bytes:
    """What ``serialize`` gives, in a tenth of the time: a million segments are to be made."""

    SEGMENT: Final = Struct(">B16sBqqiqqBiqBiBb7si")
    UPDATE: Final = Struct(">B16sBiqBb4si")

    @classmethod
    def of_segment(cls, one: RemoteLogSegmentMetadata) -> bytes:
        [(epoch, first)] = one.epochs
        return (
            b"\1\0\0"
            + _named(one.partition)
            + cls.SEGMENT.pack(
                *(0, one.id.bytes, 0, one.start_offset, one.end_offset, one.broker_id, one.max_timestamp_ms),
                *(one.event_timestamp_ms, 2, epoch, first, 0, one.size, 0, one.state),
                *(b"\2\0\1\1\x90\x4e\4", one.leader_epoch),
            )
        )

    @classmethod
    def of_update(cls, one: RemoteLogSegmentUpdate) -> bytes:
        known = one.segment_id
        fields = 0, known.id.bytes, 0, one.broker_id, one.event_timestamp_ms, 0, one.state, b"\1\x90\x4e\4"
        return b"\1\1\0" + _named(known.partition) + cls.UPDATE.pack(*fields, one.leader_epoch)


@cache
def _place(partition: TopicIdPartition) -> int:
    return metadata_partition(partition, METADATA_PARTITIONS)


_named = lru_cache(maxsize=None)(partition_bytes)


def append_later(folder: Path) -> None:
    """What has come to the metadata topic meanwhile, and to the logs of these partitions."""
    for path in (folder / "later").glob(f"*/{LOG}"):
        with open(folder / "data" / path.relative_to(folder / "later"), "ab") as log:
            log.write(path.read_bytes())
    for path in [*(folder / "data").glob("topic-*/*.log")]:
        path.rename(path.with_name(f"{int(path.stem) + RECORDS:020d}.log"))


class Timed:
    """What is done in a ``with``: seconds, and the memory of the process after it."""

    def __enter__(self) -> Timed:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu, self.wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        self.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def __str__(self) -> str:
        return f"{self.cpu:.2f} s of processor time, {self.wall:.2f} s, at most {self.peak:.0f} MiB"


def options(folder: Path, topics: str) -> dict[str, str]:
    places = {"tier": str(folder / "tier"), "metadata": str(folder / "data")}
    return {**places, "subscribePattern": topics, "startingOffsets": "earliest"}


def query(folder: Path, topics: str) -> dict[str, str]:
    """A batch query, planned twice in a process, and its tasks pickled."""
    with Timed() as imported:
        from milena.pipeline.source import MilenaDataSource
    with Timed() as first:
        source = MilenaDataSource(options(folder, topics))
        tasks = source.reader(source.schema()).partitions()
    with Timed() as pickled:
        size = sum(len(pickle.dumps(task)) for task in tasks)
    return {
        f"before planning {topics}": str(imported),
        f"first plan of {topics}, {len(tasks)} tasks": str(first),
        f"pickling them, {size / (1 << 20):.0f} MiB": str(pickled),
    }


def stream(folder: Path) -> dict[str, str]:
    """A stream's first trigger, one with nothing new, and one with news."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from milena.pipeline.source import MilenaDataSource

    source = MilenaDataSource(options(folder, ".*"))
    reader = source.streamReader(source.schema())

    def trigger(start: dict[str, object]) -> tuple[dict[str, object], int]:
        end = reader.latestOffset(start, ReadAllAvailable())
        return end, len(reader.partitions(start, end))

    with Timed() as first:
        at, tasks = trigger(reader.initialOffset())
    with Timed() as idle:
        assert trigger(at) == (at, 0)
    append_later(folder)
    with Timed() as following:
        _, more = trigger(at)
    return {
        f"a stream's first trigger, {tasks} tasks": str(first),
        "a trigger without news": str(idle),
        f"the next one, {more} tasks": str(following),
    }


MEASURES: Final[Mapping[str, Callable[[Path], dict[str, str]]]] = {
    "all": lambda folder: query(folder, ".*"),
    "some": lambda folder: query(folder, "topic-3"),
    "stream": stream,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
