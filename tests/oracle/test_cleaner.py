"""Kafka's and Milena's log cleaner clean the same logs in the same number of passes: the resulting files are equal."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Final, cast

from milena.protocol.records.batch import BatchView, Codec
from milena.runtime.disk import Disk
from milena.runtime.files import RealDisk
from tests.oracle.kafka import java
from tests.unit.storage.cleaning.cleaned_logs import DAY_MS, KeyedLog, batches_in, records_of
from tests.unit.storage.logs import LogFolder

PROGRAM: Final = Path(__file__).with_name("CleanerOracle.java")
SEGMENT_BYTES, INTERVAL = 1500, 200
ROUNDS: Final = 3
SEEDS: Final = 12
HEADER: Final = (
    "base_offset",
    "leader_epoch",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
)
INDEXES: Final = ("*.index", "*.timeindex", "*.txnindex")


class Pair:
    """Two copies of one log: one for Milena and one for Kafka."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.ours = KeyedLog.at(
            path / "ours", segment_bytes=SEGMENT_BYTES, index_interval_bytes=INTERVAL, cleanup_policy=("compact",)
        )
        self.kafkas = path / "kafkas" / "topic-0"
        self.open: dict[int, int] = {}
        """Producers with an open transaction, and their next sequence number."""
        self.sequences: dict[int, int] = {}
        # In every third log, the offset map is too small for all keys. If a pass begins after an abort marker, Kafka
        # takes the producer's next transaction for aborted, too, and does not map its keys: these logs have no aborts.
        self.is_large = seed % 3 == 0
        self.memory = 20 * 24 if self.is_large else 1 << 16

    def write(self, count: int) -> None:
        for _ in range(count):
            kind = self.random.random()
            if kind < 0.2:
                self._transaction()
            elif kind < 0.4:
                self._send(self.random.choice([11, 12, 13]), transactional=False)
            else:
                self._send(None, transactional=False)

    def _send(self, producer: int | None, *, transactional: bool) -> None:
        number = self.random.randint(1, 4)
        records = [
            (b"key %d" % self.random.randint(0, 40), None if self.random.random() < 0.2 else self.random.randbytes(20))
            for _ in range(number)
        ]
        codec = self.random.choice([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.GZIP, Codec.SNAPPY])
        identity = None
        if producer is not None:
            identity = (producer, 0, self.sequences.get(producer, 0))
            self.sequences[producer] = identity[2] + number
        self.ours.write(*records, producer=identity, codec=codec, transactional=transactional)

    def _transaction(self) -> None:
        producer = self.random.choice([101, 102])
        if self.random.random() < 0.8:
            self._send(producer, transactional=True)
            self.open[producer] = 1
        if self.random.random() < 0.6:
            self.end(producer)

    def end(self, producer: int) -> None:
        self.open.pop(producer, None)
        self.ours.end((producer, 0), commit=self.is_large or self.random.random() < 0.5)

    def end_all(self) -> None:
        for producer in list(self.open):
            self.end(producer)

    def copy(self) -> None:
        """Copy the appended batches to Kafka's log, so that it has the same active segment."""
        self.ours.log.close()
        mine = Path(self.ours.folder.path)
        self.kafkas.mkdir(parents=True, exist_ok=True)
        for file in mine.iterdir():
            shutil.copy2(file, self.kafkas / file.name)
        self.ours.log = self.ours.folder.open()
        self.ours.log.set_high_watermark(self.ours.log.log_end_offset)

    def question(self) -> str:
        found = self.ours.range()
        config = self.ours.folder.config
        return (
            f"{self.kafkas} {found.first_dirty} {found.end} {self.ours.now} {config.delete_retention_ms} "
            f"{config.segment_bytes} {config.index_interval_bytes} {self.memory} 0.9"
        )


def ask(lines: list[str]) -> list[list[int]]:
    """Run one pass of Kafka's cleaner for each line; return where it ended and must end. For ``load``: segments."""
    command = java(str(PROGRAM))
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines() if line[0].isdigit()]


def content(batch: BatchView) -> object:
    """Return the bytes of a batch; if it is compressed, its header and records, because compressed bytes may differ."""
    if not batch.is_compressed:
        return batch.memory.tobytes()
    header = [getattr(batch, name) for name in HEADER]
    return header, records_of(batch)


def is_mark(batch: BatchView) -> bool:
    """Whether the batch only marks the start of its leader epoch. Kafka's cleaner does not keep that."""
    return not batch.count and not batch.has_producer_id


def test_kafkas_and_milenas_cleaner_write_the_same_files(tmp_path: Path) -> None:
    pairs = [Pair(tmp_path / str(seed), seed) for seed in range(SEEDS)]
    kept = removed = 0
    for number in range(ROUNDS + 1):
        for pair in pairs:
            pair.write(60)
            if number % 2:
                pair.end_all()
            pair.ours.now += DAY_MS // 2 + 1
            if number == ROUNDS:
                pair.ours.log.roll()  # nothing uncleaned is left
            pair.copy()
        answers = ask([pair.question() for pair in pairs])
        for pair, (cleaned_to, end) in zip(pairs, answers, strict=True):
            before = len(pair.ours.records())
            assert pair.ours.range().end == end
            pair.ours.clean(memory=pair.memory)
            assert pair.ours.dirty == cleaned_to
            kafkas = [content(one) for one in batches_in(str(pair.kafkas))]
            first, *others = [content(one) for one in pair.ours.batches()]
            assert others == kafkas if is_mark(pair.ours.batches()[0]) else [first, *others] == kafkas
            kept += len(pair.ours.records())
            removed += before - len(pair.ours.records())
            mine = Path(pair.ours.folder.path)
            # Kafka creates the indexes of an empty segment at once, Milena with their first entry.
            empty = f"{pair.ours.log.log_end_offset:020}"
            for pattern in INDEXES:
                assert sorted(file.name for file in mine.glob(pattern)) == sorted(
                    file.name for file in pair.kafkas.glob(pattern) if file.stem != empty
                )
            for file in mine.glob("*.txnindex"):
                assert file.read_bytes() == (pair.kafkas / file.name).read_bytes()
            # The next pass begins with Milena's files, because compressed sizes differ.
            shutil.rmtree(pair.kafkas)
    assert kept > 1000 and removed > 1000


class Photographer:
    """A disk that keeps a copy of a log's folder before each rename."""

    def __init__(self, folder: str, photos: Path) -> None:
        self._disk = RealDisk()
        self._folder = folder
        self._photos = photos
        self.taken: list[Path] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        self.take()
        self._disk.rename(old, new, sync=sync)

    def take(self) -> None:
        self.taken.append(self._photos / str(len(self.taken)) / "topic-0")
        shutil.copytree(self._folder, self.taken[-1])


def test_kafka_and_milena_complete_a_segment_swap_interrupted_at_any_point(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path / "log", segment_bytes=1000, cleanup_policy=("compact",))
    camera = Photographer(folder.path, tmp_path / "photos")
    folder.disk = cast(Disk, camera)
    keyed = KeyedLog(folder)
    for number in range(30):
        if number % 3 == 0:
            keyed.log.roll()
        keyed.write((b"%d" % (number % 5), b"%d" % number * 20), (b"only %d" % number, b"x"))
    written = {record.key: record.value for record in keyed.records()}
    keyed.log.flush()
    keyed.log.close()
    camera.taken.clear()
    shutil.rmtree(tmp_path / "photos", ignore_errors=True)
    assert max(len(new.replaced) for new in keyed.clean()) > 1
    camera.take()
    names = {path.name.rpartition(".")[2] for photo in camera.taken for path in photo.iterdir()}
    assert {"cleaned", "swap", "deleted"} <= names and len(camera.taken) > 30
    kafkas = [shutil.copytree(photo, tmp_path / "kafkas" / str(n) / "topic-0") for n, photo in enumerate(camera.taken)]
    answers = ask([f"load {path} {keyed.now}" for path in kafkas])
    for photo, kafka, segments in zip(camera.taken, kafkas, answers, strict=True):
        ours = LogFolder(photo.parent, segment_bytes=1000, cleanup_policy=("compact",))
        log = ours.open()
        assert [segment.base_offset for segment in log.segments] == segments
        mine = [batch.memory.tobytes() for batch in batches_in(ours.path)]
        assert mine == [batch.memory.tobytes() for batch in batches_in(str(kafka))]
        found = [record for batch in batches_in(ours.path) for record in records_of(batch)]
        assert {record.key: record.value for record in found} == written
