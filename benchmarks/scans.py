"""The cost of reading a record with every check, in the running flavour; and of aiokafka's reader, written in Cython.

Nanoseconds of processor time for a record of 100 bytes, uncompressed, 1,000 in a batch; the median of rounds in turns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatch

from benchmarks.forms import in_form
from benchmarks.peers import Milena, Peer
from benchmarks.sizes import Sizes
from benchmarks.turns import Rounds
from milena.protocol.records.batch import BatchView
from milena.protocol.records.record_cursor import RecordCursor
from milena.protocol.records.record_scan import scan_few_records
from milena.protocol.records.records import BatchBuilder, iter_records

RECORDS: Final = 1_000
BATCHES: Final = 20
"""Records of a round."""
ROUNDS: Final = 9


def scans(peer: Peer, _sizes: Sizes) -> Rounds:
    """Three rounds, each in a new process."""
    if isinstance(peer, Milena):
        for _ in range(3):
            yield in_form(peer.environment, "benchmarks.scans")


def key_and_value(data: bytes) -> int:
    seen = 0
    cursor = RecordCursor(BatchView(memoryview(data)))
    while cursor.advance():
        seen += cursor.key is not None and cursor.value is not None
    return seen


def all_fields(data: bytes) -> int:
    seen = 0
    for record in iter_records(BatchView(memoryview(data))):
        seen += record.key is not None and record.value is not None
    return seen


def check_only(data: bytes) -> int:
    facts = scan_few_records(BatchView(memoryview(data)))
    return RECORDS - facts.keyless if facts else 0


def aiokafka_key_and_value(data: bytes) -> int:
    seen = 0
    for record in DefaultRecordBatch(data):
        seen += record.key is not None and record.value is not None
    return seen


READERS: Final = (key_and_value, all_fields, check_only, aiokafka_key_and_value)


def measure() -> dict[str, float]:
    data = batch()
    rounds: dict[str, list[float]] = {reader.__name__: [] for reader in READERS}
    for number in range(1 + ROUNDS):
        for reader in READERS:
            spent = nanoseconds(reader, data)
            rounds[reader.__name__] += [spent] if number else []
    found = {name: median(values) for name, values in rounds.items()}
    other = found["aiokafka_key_and_value"]
    return {
        **{f"scan_{name}_ns": value for name, value in found.items()},
        "scan_key_and_value_share": found["key_and_value"] / other,
        "scan_check_only_share": found["check_only"] / other,
    }


def batch() -> bytes:
    builder = BatchBuilder()
    now = time.time_ns() // 1_000_000
    for number in range(RECORDS):
        builder.append(timestamp=now + number // 10, key=b"%08d" % number, value=b"x" * 100)
    return builder.build()


def nanoseconds(reader: Callable[[bytes], int], data: bytes) -> float:
    """Time per record. Raises RuntimeError for a reader that has not seen all records."""
    begin = time.process_time_ns()
    for _ in range(BATCHES):
        if reader(data) != RECORDS:
            raise RuntimeError(f"{reader.__name__} does not find {RECORDS} records")
    return (time.process_time_ns() - begin) / BATCHES / RECORDS


if __name__ == "__main__":
    print(json.dumps(measure()))
