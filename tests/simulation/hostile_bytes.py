"""Prints a line for each decoding of damaged bytes: ``python -m tests.simulation.hostile_bytes SEED``.

The pure and the compiled form must print the same lines (``test_both_forms.py``): results, or types and messages of
errors.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID

from milena.protocol.api_keys import ApiKey
from milena.protocol.records.batch import BatchView, Codec, iter_batches, pack_batch
from milena.protocol.records.compression import compress
from milena.protocol.records.crc import crc32c
from milena.protocol.records.describe import describe_batch
from milena.protocol.records.record_columns import RecordColumns
from milena.protocol.records.record_cursor import RecordCursor
from milena.protocol.records.record_scan import heads_of, pieces_of, renumbered, scan_few_records, scan_records
from milena.protocol.records.records import Record, build_batch, iter_records
from milena.protocol.requests import messages
from milena.protocol.requests.fetch_request import decode_fetch_request
from milena.protocol.requests.fetch_response import decode_fetch_response
from milena.protocol.requests.headers import RequestHeader, parse_request_header, request_header
from milena.protocol.requests.produce import decode_produce_request, decode_produce_response
from milena.protocol.schemas.registry import REGISTRY, Role
from milena.protocol.types import Offset
from milena.storage.files.checkpoints import decode_clean_shutdown, decode_epochs, decode_offsets
from milena.storage.files.producer_snapshot import decode_snapshot
from milena.storage.files.txn_index import decode_aborted
from milena.storage.log.batch_scan import scan_batches
from tests.attack.mutations import mutate
from tests.attack.requests import Api, Requests, Target, apis
from tests.unit.protocol.kio_samples import kio_bytes, kio_class, kio_versions, sample

ROUNDS: Final = 4
LIMIT: Final = 1 << 20
EDGES: Final = (-(2**63), -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**62, 2**63 - 1)
BY_HAND: Final[dict[ApiKey, tuple[Callable[..., object], Callable[..., object]]]] = {
    ApiKey.FETCH: (decode_fetch_request, decode_fetch_response),
    ApiKey.PRODUCE: (decode_produce_request, decode_produce_response),
}
TARGET: Final = Target("cluster", ("topic",), (UUID(int=7),), ("group",))


def outcome(work: Callable[..., object], *arguments: object) -> str:
    """The result or the error of the work as text."""
    try:
        found = work(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return repr(found)


class Bytes:
    """Bytes in memory as the source of a log."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, length: int, position: int) -> bytes:
        return self._data[position : position + length]


def batches(rnd: random.Random) -> Iterator[bytes]:
    """Valid batches, and batches with damaged records whose checksum and compression are valid."""
    for codec in Codec:
        records = [
            Record(
                rnd.choice((at, 2**31 - 1)),
                rnd.choice(EDGES),
                rnd.choice((None, b"", b"key")),
                rnd.choice((None, bytes(rnd.choice((0, 1, 70, 9000))))),
                tuple((f"h{n}", rnd.choice((None, b"v"))) for n in range(rnd.choice((0, 0, 1, 70)))),
            )
            for at in range(rnd.choice((1, 3)))
        ]
        base, largest = rnd.choice(EDGES), rnd.choice(EDGES)
        sound = BatchView(memoryview(build_batch(records, base_timestamp=base, max_timestamp=largest)))
        body = bytes(sound.records)
        for damaged in (body, mutate(body, rnd), mutate(body, rnd), rnd.randbytes(rnd.randrange(40))):
            yield bytes(
                pack_batch(
                    compress(codec, damaged),
                    codec=codec,
                    count=rnd.choice((len(records), len(records), 0, -1, 2**31 - 1)),
                    last_offset_delta=rnd.choice((len(records) - 1, -1, 2**31 - 1)),
                    base_offset=Offset(rnd.choice(EDGES)),
                    base_timestamp=base,
                    max_timestamp=largest,
                )
            )


def driven(steps: Any) -> object:
    seen = []
    while True:
        try:
            seen.append(next(steps))
        except StopIteration as done:
            return seen, done.value


def of_records(data: bytes) -> list[object]:
    view = BatchView(memoryview(bytearray(data)))
    return [
        repr(view),
        (view.last_offset, view.next_offset, view.last_sequence, view.is_valid),
        outcome(lambda: list(iter_records(view, LIMIT))),
        outcome(spans, view),
        outcome(columns, view),
        outcome(lambda: driven(scan_records(pieces_of(view), view.count))),
        outcome(scan_few_records, view),
        outcome(lambda: list(heads_of(view))),
        outcome(lambda: b"".join(renumbered(view)) if view.count < 100 else None),
        outcome(lambda: list(describe_batch(view, 0, limit=LIMIT))),
    ]


def spans(view: BatchView) -> object:
    cursor = RecordCursor(view, LIMIT)
    found: list[object] = []
    while cursor.advance():
        found.append((cursor.offset_delta, cursor.timestamp_delta, cursor.key_length, cursor.value_length))
        found.append((cursor.header_count, len(cursor.encoded), cursor.headers))
    return found, cursor.advance()


def columns(view: BatchView) -> object:
    made = RecordColumns()
    made.add(view, LIMIT)
    return made.offsets, made.timestamps, [made.keys[n] for n in range(len(made))], bytes(made.values.data)


def lines(seed: int) -> Iterator[str]:
    rnd = random.Random(seed)
    for _ in range(ROUNDS):
        for data in batches(rnd):
            for one in (data, mutate(data, rnd)):
                yield f"records {outcome(of_records, one)}"
                yield f"log {outcome(of_log, one * 2)}"
        yield from requests(rnd)
        yield from files(rnd)


def of_log(data: bytes) -> object:
    return (
        outcome(lambda: list(scan_batches(Bytes(data), 0, len(data)))),
        outcome(lambda: list(iter_batches(memoryview(data)))),
    )


def requests(rnd: random.Random) -> Iterator[str]:
    made = Requests(TARGET, rnd)
    for key, version in [api for role in Role for api in apis(role)]:
        body = mutate(made.body(Api(key, version)), rnd)
        yield f"{key.name} {version} {outcome(messages.decode_request, key, version, body)}"
        frame = mutate(request_header(key, version, rnd.randrange(2**31), "client") + body, rnd)
        yield f"header {outcome(lambda frame: plain(parse_request_header(frame)[0]), memoryview(frame))}"
        if key in BY_HAND and version in kio_versions(REGISTRY[key]):
            answer = mutate(kio_bytes(sample(kio_class(key, version, "response"), rnd)), rnd)
            for decode, data in zip(BY_HAND[key], (body, answer), strict=True):
                found = outcome(lambda decode, *of: plain(decode(*of)), decode, version, memoryview(data))
                yield f"by hand {found}"


def plain(value: object) -> object:
    """The value with the contents of memoryviews and objects in place of texts that contain addresses."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if type(value).__repr__ is object.__repr__ or isinstance(value, RequestHeader):
        kind: Any = type(value)
        names = kind.__slots__ if hasattr(kind, "__slots__") else kind.__mypyc_attrs__  # objects of the compiled form
        return [plain(getattr(value, name)) for name in sorted(names)]
    return value


def files(rnd: random.Random) -> Iterator[str]:
    aborted = struct.pack(">hqqqq", 0, *(rnd.choice(EDGES) for _ in range(4)))
    yield f"aborted {outcome(decode_aborted, mutate(aborted, rnd), 'index')}"
    body = struct.pack(">iqhiqiqiq", 1, *(rnd.choice((-1, 0, 7)) for _ in range(8)))
    body = mutate(body, rnd)
    yield f"snapshot {outcome(kept, struct.pack('>hI', 1, crc32c(body)) + body)}"
    for decode in (decode_epochs, decode_offsets, decode_clean_shutdown):
        text = mutate(f"0\n1\n{rnd.choice(EDGES)} {rnd.choice(EDGES)} {rnd.choice(EDGES)}\n".encode(), rnd)
        yield f"{decode.__name__} {outcome(decode, text)}"


def kept(data: bytes) -> object:
    return [(producer, entry.epoch, entry.last_timestamp) for producer, entry in decode_snapshot(data)]


if __name__ == "__main__":
    for line in lines(int(sys.argv[1])):
        print(line)
