"""Record batches in both directions between Milena and Kafka's Java classes, and metadata and coordinator records."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from milena.protocol.metadata_records import encode_record, record_types
from milena.protocol.records.batch import BatchView, Codec, CorruptBatch, TimestampType, iter_batches, pack_batch
from milena.protocol.records.compression import compress
from milena.protocol.records.consumer_protocol import Subscription, TopicPartitions, encode_consumer_message
from milena.protocol.records.control_records import (
    CommitMarker,
    ControlRecord,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    control_batch,
    encode_control_key,
    encode_control_value,
)
from milena.protocol.records.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from milena.protocol.records.records import Record, build_batch, iter_records, offset_of, timestamp_of
from milena.protocol.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tests.oracle.kafka import java
from tests.unit.protocol.schema_samples import samples

DAMAGED = 4_000
TIMES = (0, -3, 2**40, -(2**63), 2**63 - 1)
PROGRAM = Path(__file__).with_name("RecordOracle.java")

RECORDS = [
    Record(0, 0, b"key", b"value", (("h\u00e4der", b"x"), ("null", None))),
    Record(1, -3, None, b""),
    Record(2, 876, b"", None),
    Record(3, 9, None, b"repeat me " * 20_000),
    *(Record(4 + n, n, None, b"value %d" % (n * n)) for n in range(200)),
]


def oracle(*arguments: object, lines: Iterable[str] = ()) -> list[str]:
    """Runs a command of RecordOracle.java on ``lines`` and returns the lines that it prints."""
    command = java(str(PROGRAM), *map(str, arguments))
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def text(value: bytes | None) -> str:
    return "null" if value is None else "x" + value.hex()


def dump(data: bytes | bytearray) -> Iterator[str]:
    """Return a batch in the form of RecordOracle's command dump."""
    for batch in iter_batches(memoryview(data)):
        batch.verify_crc()
        fields = (
            batch.base_offset,
            batch.last_offset,
            batch.leader_epoch,
            batch.codec.name,
            "LOG_APPEND_TIME" if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else "CREATE_TIME",
            str(batch.is_transactional).lower(),
            str(batch.is_control).lower(),
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.last_sequence,
            batch.count,
            batch.max_timestamp,
            batch.size_in_bytes,
        )
        yield " ".join(map(str, ("batch", *fields)))
        for record in iter_records(batch):
            headers = [f"{text(key.encode())}={text(value)}" for key, value in record.headers]
            place = (offset_of(batch, record), timestamp_of(batch, record))
            yield " ".join(map(str, ("record", *place, text(record.key), text(record.value), *headers)))


def test_kafka_reads_the_batches_that_milena_writes(tmp_path: Path) -> None:
    written = bytearray()
    for codec in Codec:
        for level in {Codec.GZIP: (None, 1, 9), Codec.LZ4: (None, 1, 17), Codec.ZSTD: (None, 1, 19)}.get(
            codec, (None,)
        ):
            batch = build_batch(
                RECORDS,
                codec=codec,
                level=level,
                base_offset=Offset(len(written)),
                base_timestamp=1_700_000_000_123,
                leader_epoch=LeaderEpoch(5),
                producer_id=ProducerId(7),
                producer_epoch=ProducerEpoch(2),
                base_sequence=2**31 - 3,
                transactional=True,
            )
            appended = BatchView(memoryview(bytearray(batch)))
            appended.assign(Offset(len(written) + 1_000), LeaderEpoch(6))
            appended.set_max_timestamp(TimestampType.LOG_APPEND_TIME, 1_800_000_000_321)
            written += batch + bytes(appended.memory)
    file = tmp_path / "ours"
    file.write_bytes(written)
    assert oracle("dump", file) == list(dump(written))


def judged(data: bytes) -> str:
    """Return the result for a batch in the form of RecordOracle's command judge."""
    try:
        batch = BatchView(memoryview(data))
        found = ["read"]
        for record in iter_records(batch):
            values = [text(value) for _, value in record.headers]
            place = (offset_of(batch, record), timestamp_of(batch, record))
            found.append(" ".join(map(str, (*place, text(record.key), text(record.value), *values))))
        return " | ".join(found)
    except CorruptBatch:
        return "refused"


def damaged_batches(rnd: random.Random) -> Iterator[bytearray]:
    """Batches with valid checksums whose records may have a few wrong bytes, be cut, or have a wrong count."""
    for _ in range(DAMAGED):
        count = rnd.randrange(1, 5)
        records = [
            Record(n, rnd.choice(TIMES), some(rnd), some(rnd), (("h", some(rnd)),) * (n % 3)) for n in range(count)
        ]
        body = bytearray(BatchView(memoryview(build_batch(records, base_timestamp=0, max_timestamp=0))).records)
        for _ in range(rnd.randrange(4)):
            body[rnd.randrange(len(body))] = rnd.choice((0, 1, 0x7F, 0x80, 0xFF, rnd.randrange(256)))
        if rnd.random() < 0.2:
            del body[rnd.randrange(len(body)) :]
        codec = rnd.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD))
        yield pack_batch(
            compress(codec, body),
            codec=codec,
            count=max(1, count + rnd.choice((0, 0, 0, 0, -1, 1))),  # Kafka allows any bytes if it is 0
            last_offset_delta=count - 1,
            base_timestamp=1_700_000_000_000,
            max_timestamp=1_700_000_000_000,
        )


def some(rnd: random.Random) -> bytes | None:
    return rnd.choice((None, b"", rnd.randbytes(3), rnd.randbytes(90)))


def test_damaged_records_are_read_or_refused_as_in_kafka() -> None:
    batches = list(map(bytes, damaged_batches(random.Random(1))))
    ours = list(map(judged, batches))
    assert DAMAGED / 4 < sum(line == "refused" for line in ours) < DAMAGED * 3 / 4
    kafkas = oracle("judge", lines=[batch.hex() for batch in batches])
    differing = [(data.hex(), *both) for data, *both in zip(batches, kafkas, ours, strict=True) if both[0] != both[1]]
    assert not differing, (len(differing), differing[:5])


def test_milena_reads_the_batches_that_kafka_writes(tmp_path: Path) -> None:
    oracle("write", tmp_path)
    files = sorted(path for path in tmp_path.iterdir())
    assert len(files) == 12
    everything = b"".join(path.read_bytes() for path in files)
    together = tmp_path / "together"
    together.write_bytes(everything)
    ours = list(dump(everything))
    assert oracle("dump", together) == ours
    assert {line.split()[4] for line in ours if line.startswith("batch")} == {codec.name for codec in Codec}


def test_control_batches_equal_kafkas_byte_by_byte(tmp_path: Path) -> None:
    oracle("write", tmp_path)
    commit = control_batch(
        [CommitMarker(coordinator_epoch=9)],
        timestamp=1_700_000_000_001,
        base_offset=Offset(50),
        leader_epoch=LeaderEpoch(3),
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(2),
        transactional=True,
    )
    assert commit.hex() == (tmp_path / "commit").read_bytes().hex()
    change = control_batch(
        [LeaderChange(leader_id=3, voters=(Voter(voter_id=3),), granting_voters=(Voter(voter_id=3),))],
        timestamp=1_700_000_000_002,
        base_offset=Offset(8),
        leader_epoch=LeaderEpoch(4),
    )
    assert change.hex() == (tmp_path / "leader-change").read_bytes().hex()


def test_kafka_reads_metadata_records_and_writes_the_same_bytes() -> None:
    records = [
        encode_record(record, version=version)
        for schema in record_types().values()
        for version in range(schema.__version__ + 1)
        for record in samples(schema, version)
    ]
    lines = oracle("metadata", lines=map(text, records))
    assert [line.split()[0] for line in lines] == [text(record) for record in records]


def test_kafka_reads_coordinator_records_and_writes_the_same_bytes() -> None:
    commit, group = OffsetCommitKey(group="g\u00e4", topic="t", partition=3), GroupMetadataKey(group="g")
    pairs = [f"{text(encode_key(commit))} null", f"{text(encode_key(group))} null"]
    for version in range(5):
        for offset in samples(OffsetCommitValue, version):
            pairs.append(f"{text(encode_key(commit))} {text(encode_value(offset, version))}")
        for state in samples(GroupMetadataValue, version):
            pairs.append(f"{text(encode_key(group))} {text(encode_value(state, version))}")
    assert oracle("coordinator", lines=pairs) == pairs


def test_kafka_reads_control_records() -> None:
    schemas: list[type[ControlRecord]] = [LeaderChange, SnapshotHeader, SnapshotFooter, KRaftVersion, KRaftVoters]
    written = [
        (schema.TYPE.name, f"{text(encode_control_key(record))} {text(encode_control_value(record, version))}")
        for schema in schemas
        for version in range(schema.__version__ + 1)
        for record in samples(schema, version)
    ]
    lines = oracle("control", lines=[pair for _, pair in written])
    assert [line.split()[0] for line in lines] == [name for name, _ in written]


def test_kafka_reads_subscriptions_and_writes_the_same_bytes() -> None:
    full = Subscription(
        topics=("a", "t\u00e4"),
        user_data=b"data",
        owned_partitions=(TopicPartitions(topic="a", partitions=(0, 2)), TopicPartitions(topic="b", partitions=(1,))),
        generation_id=5,
        rack_id="r",
    )
    written = [
        text(encode_consumer_message(subscription, version))
        for version in range(4)
        for subscription in (full, Subscription(topics=()))
    ]
    assert oracle("subscription", lines=written) == written
