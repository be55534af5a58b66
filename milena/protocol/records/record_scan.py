"""Going through the records of a batch without making them: are they whole, and what of them does an append need?

Every field of every record is looked at, as Kafka's ``LogValidator`` does; beyond it, a record's length must be that
of its fields in compressed batches too (there Kafka's brokers believe it, and consumers stop). Negative lengths of keys
and values are null, as in ``DefaultRecord``. Memory is bounded whatever a batch grows to: a record that is larger than
what is joined is read over piece by piece.

All of it is generators, which yield at bounded intervals of work, with about how many records' worth of work that was:
whoever drives them may do other things then.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from milena.protocol.records.batch import BatchView, Codec, CorruptBatch
from milena.protocol.records.decompression import PIECE, decompressed
from milena.protocol.records.piece_reader import PieceReader
from milena.protocol.records.record_cursor import after_headers
from milena.protocol.records.varints import MASK_63, decoded, read_raw, write_varint

if TYPE_CHECKING:
    from mypy_extensions import i64

STEP: Final = 1000
"""Records between two pauses."""
PIECE_COST: Final = 150
"""To read over a piece of a large record takes about the time of so many records at most."""
_CALL_COST: Final = 10
"""So much of that for a piece whatever its size."""
_COSTS: Final = {Codec.NONE: 10, Codec.GZIP: 330, Codec.SNAPPY: 110, Codec.LZ4: 40, Codec.ZSTD: 75}
"""To decompress 64 KiB takes about the time of so many records of the pure form."""
_JOINED: Final = 4 * PIECE
"""Records up to this length are brought together in memory."""
_MANY_HEADERS: Final = 64
"""Records with more are read field by field."""


class RecordFacts(NamedTuple):
    """What is known of the records of a batch that are all whole."""

    smallest_delta: int
    largest_delta: int
    """Of the timestamps, against the batch's base timestamp."""
    in_order: bool
    """Their offset deltas are 0, 1, 2..."""
    keyless: int
    """How many have no key."""


NO_FACTS: Final = RecordFacts((1 << 63) - 1, -1 << 63, True, 0)


class Head(NamedTuple):
    """The first fields of a record."""

    offset_delta: int
    timestamp_delta: int
    has_key: bool


def pieces_of(batch: BatchView) -> Iterator[bytes | memoryview]:
    """The records' bytes, decompressed, in pieces of at most 64 KiB, perhaps empty ones. Raises CorruptBatch."""
    for block in decompressed(batch.codec if batch.is_compressed else Codec.NONE, batch.records):
        if len(block) <= PIECE:
            yield block
        else:
            view = memoryview(block)
            for start in range(0, len(view), PIECE):
                yield view[start : start + PIECE]


def renumbered(batch: BatchView) -> Iterator[bytes | memoryview]:
    """What ``pieces_of`` gives, with the offset deltas 0, 1, 2... The records must have been checked."""
    reader = PieceReader(pieces_of(batch))
    out = bytearray()
    for index in range(batch.count):
        end = reader.varint() + reader.passed
        head = bytearray((reader.byte(),))
        write_varint(head, reader.varint(64))
        reader.varint()
        write_varint(head, index)
        write_varint(out, len(head) + end - reader.passed)
        out += head
        for piece in reader.take(end - reader.passed):
            out += piece
            if len(out) >= PIECE:
                yield bytes(out)
                out.clear()
    yield bytes(out)


def work_of(codec: Codec, size: int) -> int:
    """To decompress ``size`` bytes of content takes about the time of so many records."""
    return _COSTS[codec] * size // PIECE


def scan_records(
    pieces: Iterable[bytes | memoryview], count: int, codec: Codec = Codec.NONE
) -> Generator[int, None, RecordFacts]:
    """The facts of the ``count`` records in ``pieces``, which are decompressed with ``codec`` on the way.

    Raises CorruptBatch where they are no records, not as many, or not all there is.
    """
    scan = _Scan(pieces, count, codec)
    yield from scan.run()
    return scan.facts


def scan_few_records(batch: BatchView) -> RecordFacts | None:
    """What ``scan_records`` finds in an uncompressed batch, at one go; None if that is not to be had so."""
    if batch.is_compressed or batch.count > STEP:
        return None
    data = bytes(batch.records)
    position, index, facts = whole_records(data, 0, 0, batch.count, NO_FACTS)
    return facts if index == batch.count and position == len(data) else None


def heads_of(batch: BatchView) -> Iterator[Head | int]:
    """The head of each record in order, and numbers for pauses. Raises CorruptBatch."""
    reader = PieceReader(pieces_of(batch))
    try:
        for _ in range(batch.count):
            end = reader.varint() + reader.passed
            reader.byte()
            timestamp = reader.varint(64)
            head = Head(reader.varint(), timestamp, reader.varint() >= 0)
            for _ in reader.skip(end - reader.passed):
                yield PIECE_COST
            yield head
    except IndexError:
        raise CorruptBatch("the records end before the last field") from None


def whole_records(
    data: bytes, position: i64, index: i64, stop: i64, facts: RecordFacts
) -> tuple[i64, i64, RecordFacts]:
    """Check the records that lie whole in ``data``, up to index ``stop``; returns position and index of the first that
    does not, or is not to be read here, and the facts with those that do. Raises CorruptBatch."""
    at: i64 = position
    size: i64 = len(data)
    smallest: i64 = facts.smallest_delta
    largest: i64 = facts.largest_delta
    in_order = facts.in_order
    keyless: i64 = facts.keyless
    known: i64 = -1
    raw: i64
    more: i64
    try:
        while index < stop:
            raw = data[at]
            at += 1
            if raw >= 0x80:
                raw, at = (raw - 128 + (more << 7), at + 1) if (more := data[at]) < 0x80 else read_raw(data, at - 1)
            if raw & 1:
                raise CorruptBatch(f"record {index} has a negative length")
            end = at + (raw >> 1)
            raw = data[at + 1]
            at += 2
            if raw >= 0x80:
                raw, at = (raw - 128 + (more << 7), at + 1) if (more := data[at]) < 0x80 else read_raw(data, at - 1, 64)
            if raw != known or raw == -1:  # compiled, -1 is the smallest delta of all, too
                known = raw
                delta = (raw >> 1 & MASK_63) ^ -(raw & 1)
                smallest = delta if delta < smallest else smallest
                largest = delta if delta > largest else largest
            raw = data[at]
            at += 1
            if raw >= 0x80:
                raw, at = (raw - 128 + (more << 7), at + 1) if (more := data[at]) < 0x80 else read_raw(data, at - 1)
            in_order = in_order and raw == index << 1
            key: i64 = data[at]
            at += 1
            if key >= 0x80:
                key, at = (key - 128 + (more << 7), at + 1) if (more := data[at]) < 0x80 else read_raw(data, at - 1)
            if not key & 1:
                at += key >> 1
            raw = data[at]
            at += 1
            if raw >= 0x80:
                raw, at = (raw - 128 + (more << 7), at + 1) if (more := data[at]) < 0x80 else read_raw(data, at - 1)
            if not raw & 1:
                at += raw >> 1
            at = _headers_end(data, at, index) if data[at] else at + 1
            if at < 0 or at > size:
                break
            if at != end:
                raise CorruptBatch(f"the fields of record {index} do not end where it does")
            keyless += key & 1
            position = at
            index += 1
    except IndexError:
        pass
    return position, index, RecordFacts(smallest, largest, in_order, keyless)


class _Scan:
    """``data`` is the piece at hand behind what was left of the one before; ``position`` is in it, at a record."""

    def __init__(self, pieces: Iterable[bytes | memoryview], count: int, codec: Codec) -> None:
        self._pieces = iter(pieces)
        self._count = count
        self._codec = codec
        self._index = 0
        self._data = b""
        self._position = 0
        self.facts = NO_FACTS

    def run(self) -> Generator[int, None, None]:
        done = 0
        while self._index < self._count:
            stop = min(self._count, self._index + STEP - done)
            before = self._index
            self._position, self._index, self.facts = whole_records(
                self._data, self._position, before, stop, self.facts
            )
            done += self._index - before
            if self._index < stop:
                for cost in self._rest_of_piece():
                    yield done + cost
                    done = 0
            elif done >= STEP:
                yield done
                done = 0
        left = len(self._data) - self._position
        for piece in self._pieces:
            left += len(piece)
            if left:
                break
            yield self._cost(piece)
        if left:
            raise CorruptBatch(f"bytes follow the last of {self._count} records")

    def _rest_of_piece(self) -> Generator[int, None, None]:
        """Join what is left with what comes next, or, where that is not to be joined, read one record alone."""
        rest = self._data[self._position :]
        whole, needed = _length_at(rest)
        if whole or needed > _JOINED:
            reader = PieceReader(self._pieces, rest)
            yield from self._one_record(reader)
            self._data, self._position = reader.rest(), 0
            return
        joined = [rest]
        size = len(rest)
        while size < needed:
            piece = next(self._pieces, None)
            if piece is None:
                raise CorruptBatch(f"the header counts {self._count} records, {self._index} are whole")
            joined.append(bytes(piece))
            size += len(piece)
            yield self._cost(piece)
        self._data, self._position = b"".join(joined), 0

    def _cost(self, piece: bytes | memoryview) -> int:
        """An empty one is a pause in work that makes nothing yet."""
        return _CALL_COST + work_of(self._codec, len(piece)) if piece else PIECE_COST

    def _one_record(self, reader: PieceReader) -> Generator[int, None, None]:
        """The same checks, without the record in memory, and a pause now and then."""
        index = self._index
        try:
            length = reader.varint()
            if length < 0:
                raise CorruptBatch(f"record {index} has a negative length")
            end = reader.passed + length
            reader.byte()
            delta = reader.varint(64)
            offset = reader.varint()
            key = reader.varint()
            yield from _skipped(reader, key, end)
            yield from _skipped(reader, reader.varint(), end)
            headers = reader.varint()
            if headers < 0:
                raise CorruptBatch(f"record {index} has {headers} headers")
            for number in range(headers):
                name = reader.varint()
                if name < 0:
                    raise CorruptBatch(f"record {index} has a header without a key")
                yield from _skipped(reader, name, end)
                yield from _skipped(reader, reader.varint(), end)
                if number % STEP == STEP - 1:
                    yield STEP
        except IndexError:
            raise CorruptBatch(f"record {index} is cut short") from None
        if reader.passed != end:
            raise CorruptBatch(f"the fields of record {index} do not end where it does")
        smallest, largest, in_order, keyless = self.facts
        self.facts = RecordFacts(
            min(smallest, delta), max(largest, delta), in_order and offset == index, keyless + (key < 0)
        )
        self._index += 1


def _skipped(reader: PieceReader, length: int, end: int) -> Iterator[int]:
    """Pass over a field. Raises IndexError if it is longer than its record."""
    if length > end - reader.passed:
        raise IndexError
    for _ in reader.skip(length):
        yield PIECE_COST


def _length_at(rest: bytes) -> tuple[bool, int]:
    """Whether the record at the start of ``rest`` is whole, and the bytes that are needed to go on with it."""
    try:
        raw, position = read_raw(rest, 0)
    except IndexError:
        return False, len(rest) + 1
    needed = position + (raw >> 1)
    return needed <= len(rest), needed


def _headers_end(data: bytes, position: i64, index: i64) -> i64:
    """The position behind the headers of a record, -1 if there are too many to be read at one go."""
    raw, at = read_raw(data, position)
    if raw & 1:
        raise CorruptBatch(f"record {index} has {decoded(raw)} headers")
    return after_headers(data, at, raw >> 1) if raw >> 1 <= _MANY_HEADERS else -1
