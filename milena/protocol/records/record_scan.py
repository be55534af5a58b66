"""Validation of the records of a batch without creating Record objects, and the facts that an append needs.

Every field of every record is checked, as in Kafka's ``LogValidator``. In addition, a record's length must match its
fields in compressed batches, too: Kafka's brokers do not check this, and consumers could not read past such a record.
Negative lengths of keys and values mean null, as in ``DefaultRecord``. Memory is bounded for any decompressed size: a
record of more than ``_MAX_JOINED`` bytes is read piece by piece.

The functions are generators. They yield at bounded intervals, so that the caller can do other work, the cost of the
work since the last yield: the time for this number of records, approximately.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from milena.protocol.records.batch import BatchView, Codec, CorruptBatch
from milena.protocol.records.decompression import PIECE, decompressed
from milena.protocol.records.record_cursor import after_headers
from milena.protocol.records.varints import MASK_63, decoded, read_raw, write_varint

if TYPE_CHECKING:
    from mypy_extensions import i64

STEP: Final = 1000
"""The cost (in records) after which a generator yields."""
PIECE_COST: Final = 150
"""Maximum cost, in records, of skipping a piece of a large record."""
_CALL_COST: Final = 10
"""The part of the cost that does not depend on the size of the piece."""
_COSTS: Final = {Codec.NONE: 10, Codec.GZIP: 330, Codec.SNAPPY: 110, Codec.LZ4: 40, Codec.ZSTD: 75}
"""Cost of decompressing 64 KiB, in records of the pure build."""
_MAX_JOINED: Final = 4 * PIECE
"""Maximum bytes of a record whose pieces are joined in memory."""
_MANY_HEADERS: Final = 64
"""A record with more headers is read field by field."""


class RecordFacts(NamedTuple):
    """Facts about the valid records of a batch."""

    smallest_delta: int
    largest_delta: int
    """The smallest and largest timestamp delta (ms), relative to the batch's base timestamp."""
    in_order: bool
    """Whether the offset deltas are 0, 1, 2, ..."""
    keyless: int
    """The number of records with a null key."""


NO_FACTS: Final = RecordFacts((1 << 63) - 1, -1 << 63, True, 0)


class RecordHead(NamedTuple):
    """The first fields of a record. ``size``: its bytes after the length."""

    size: int
    offset_delta: int
    timestamp_delta: int
    has_key: bool


def pieces_of(batch: BatchView) -> Iterator[bytes | memoryview]:
    """Yield the decompressed bytes of the records in pieces of at most 64 KiB, possibly empty. Raises CorruptBatch."""
    for block in decompressed(batch.codec if batch.is_compressed else Codec.NONE, batch.records):
        if len(block) <= PIECE:
            yield block
        else:
            view = memoryview(block)
            for start in range(0, len(view), PIECE):
                yield view[start : start + PIECE]


def renumbered(batch: BatchView) -> Iterator[bytes | memoryview]:
    """Like ``pieces_of``, with the offset deltas replaced by 0, 1, 2, ... The records must be valid."""
    reader = PieceReader(pieces_of(batch))
    out = bytearray()
    for index in range(batch.count):
        end = reader.varint() + reader.bytes_read
        head = bytearray((reader.byte(),))
        write_varint(head, reader.varint(64))
        reader.varint()
        write_varint(head, index)
        write_varint(out, len(head) + end - reader.bytes_read)
        out += head
        for piece in reader.take(end - reader.bytes_read):
            out += piece
            if len(out) >= PIECE:
                yield bytes(out)
                out.clear()
    yield bytes(out)


def work_of(codec: Codec, size: int) -> int:
    """Return the cost, in records, of decompressing ``size`` bytes of content."""
    return _COSTS[codec] * size // PIECE


def scan_records(
    pieces: Iterable[bytes | memoryview], count: int, codec: Codec = Codec.NONE
) -> Generator[int, None, RecordFacts]:
    """Validate the ``count`` records in ``pieces``, and return their facts. ``codec`` is the codec that the iteration
    of ``pieces`` decompresses; it determines the yielded cost.

    Raises CorruptBatch for invalid or fewer records, or for bytes after them.
    """
    scan = _Scan(pieces, count, codec)
    yield from scan.run()
    return scan.facts


def scan_few_records(batch: BatchView) -> RecordFacts | None:
    """Return the result of ``scan_records`` for an uncompressed batch of at most STEP records, without yields. Returns
    None if the batch is another, or ``scan_records`` must report the error. Raises CorruptBatch."""
    if batch.is_compressed or batch.count > STEP:
        return None
    data = bytes(batch.records)
    position, index, facts = whole_records(data, 0, 0, batch.count, NO_FACTS)
    return facts if index == batch.count and position == len(data) else None


def heads_of(batch: BatchView) -> Iterator[RecordHead | int]:
    """Yield the head of each record in order, and costs as the other generators. Raises CorruptBatch."""
    reader = PieceReader(pieces_of(batch))
    try:
        for _ in range(batch.count):
            size = reader.varint()
            end = size + reader.bytes_read
            reader.byte()
            timestamp = reader.varint(64)
            head = RecordHead(size, reader.varint(), timestamp, reader.varint() >= 0)
            for _ in reader.skip(end - reader.bytes_read):
                yield PIECE_COST
            yield head
    except IndexError:
        raise CorruptBatch("the records end before the last field") from None


def whole_records(
    data: bytes, position: i64, index: i64, stop: i64, facts: RecordFacts
) -> tuple[i64, i64, RecordFacts]:
    """Validate the records in ``data`` up to index ``stop``. Returns the position and index of the first record that is
    not checked, because it is incomplete, has too many headers, or has index ``stop``, and the facts including those
    checked here. Raises CorruptBatch."""
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
            if raw != known or raw == -1:  # in compiled code -1 is also the raw form of the smallest delta
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
                raise CorruptBatch(f"the fields of record {index} do not match its length")
            keyless += key & 1
            position = at
            index += 1
    except IndexError:
        pass
    return position, index, RecordFacts(smallest, largest, in_order, keyless)


class _Scan:
    """The state of ``scan_records``. ``_data`` is the unread end of the previous piece and the current piece;
    ``_position`` is the start of a record in it."""

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
                for cost in self._next_piece():
                    yield done + cost
                    done = 0
            elif done >= STEP:
                yield done
                done = 0
        excess = len(self._data) - self._position
        for piece in self._pieces:
            excess += len(piece)
            if excess:
                break
            yield self._cost(piece)
        if excess:
            raise CorruptBatch(f"bytes follow the last of {self._count} records")

    def _next_piece(self) -> Generator[int, None, None]:
        """Append the next pieces to the unread data, so that the next record is complete. If that record is too long,
        or has too many headers, validate it alone."""
        unread = self._data[self._position :]
        complete, needed = _length_at(unread)
        if complete or needed > _MAX_JOINED:
            reader = PieceReader(self._pieces, unread)
            yield from self._one_record(reader)
            self._data, self._position = reader.unread(), 0
            return
        joined = [unread]
        size = len(unread)
        while size < needed:
            piece = next(self._pieces, None)
            if piece is None:
                raise CorruptBatch(f"the header counts {self._count} records, but only {self._index} are complete")
            joined.append(bytes(piece))
            size += len(piece)
            yield self._cost(piece)
        self._data, self._position = b"".join(joined), 0

    def _cost(self, piece: bytes | memoryview) -> int:
        """Return the cost of a piece. An empty piece means that the decompressor has worked without output."""
        return _CALL_COST + work_of(self._codec, len(piece)) if piece else PIECE_COST

    def _one_record(self, reader: PieceReader) -> Generator[int, None, None]:
        """Validate one record without having it in memory as a whole."""
        index = self._index
        try:
            length = reader.varint()
            if length < 0:
                raise CorruptBatch(f"record {index} has a negative length")
            end = reader.bytes_read + length
            reader.byte()
            delta = reader.varint(64)
            offset = reader.varint()
            key = reader.varint()
            yield from _skip_field(reader, key, end)
            yield from _skip_field(reader, reader.varint(), end)
            headers = reader.varint()
            if headers < 0:
                raise CorruptBatch(f"record {index} has {headers} headers")
            for number in range(headers):
                name = reader.varint()
                if name < 0:
                    raise CorruptBatch(f"record {index} has a header without a key")
                yield from _skip_field(reader, name, end)
                yield from _skip_field(reader, reader.varint(), end)
                if number % STEP == STEP - 1:
                    yield STEP
        except IndexError:
            raise CorruptBatch(f"record {index} is truncated") from None
        if reader.bytes_read != end:
            raise CorruptBatch(f"the fields of record {index} do not match its length")
        smallest, largest, in_order, keyless = self.facts
        self.facts = RecordFacts(
            min(smallest, delta), max(largest, delta), in_order and offset == index, keyless + (key < 0)
        )
        self._index += 1


class PieceReader:
    """Reads fields from ``data`` and then from ``pieces``. All methods raise IndexError at the end, and the errors of
    ``pieces``."""

    def __init__(self, pieces: Iterator[bytes | memoryview], data: bytes | memoryview = b"") -> None:
        self._pieces = pieces
        self._data = data
        self._position = 0
        self._earlier = 0

    @property
    def bytes_read(self) -> int:
        """Bytes read so far."""
        return self._earlier + self._position

    def unread(self) -> bytes:
        """Return the unread bytes of the current piece."""
        return bytes(self._data[self._position :])

    def byte(self) -> int:
        while self._position == len(self._data):
            self._next()
        byte: int = self._data[self._position]
        self._position += 1
        return byte

    def varint(self, bits: int = 32) -> int:
        """Read a varint. Raises CorruptBatch if it has more than ``bits`` bits."""
        raw = shift = 0
        while shift < bits:
            byte = self.byte()
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                raw &= (1 << bits) - 1  # as in read_raw
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
        raise CorruptBatch(f"a varint of more than {bits} bits")

    def take(self, length: int) -> Iterator[bytes | memoryview]:
        """Yield the next ``length`` bytes in pieces; none if ``length`` is negative."""
        while length > 0:
            while self._position == len(self._data):
                self._next()
            part = self._data[self._position : self._position + length]
            self._position += len(part)
            length -= len(part)
            yield part

    def skip(self, length: int) -> Iterator[None]:
        """Skip ``length`` bytes; none if ``length`` is negative. Yields for each further piece."""
        while length > (available := len(self._data) - self._position):
            length -= available
            self._next()
            yield
        self._position += max(length, 0)

    def _next(self) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            raise IndexError
        self._earlier += len(self._data)
        self._data = piece
        self._position = 0


def _skip_field(reader: PieceReader, length: int, end: int) -> Iterator[int]:
    """Skip a field. Raises IndexError if it is longer than its record."""
    if length > end - reader.bytes_read:
        raise IndexError
    for _ in reader.skip(length):
        yield PIECE_COST


def _length_at(data: bytes) -> tuple[bool, int]:
    """Return whether ``data`` contains the whole record at its start, and the number of bytes that are needed for
    it."""
    try:
        raw, position = read_raw(data, 0)
    except IndexError:
        return False, len(data) + 1
    needed = position + (raw >> 1)
    return needed <= len(data), needed


def _headers_end(data: bytes, position: i64, index: i64) -> i64:
    """Return the position after the headers of a record; -1 if there are more than _MANY_HEADERS."""
    raw, at = read_raw(data, position)
    if raw & 1:
        raise CorruptBatch(f"record {index} has {decoded(raw)} headers")
    return after_headers(data, at, raw >> 1) if raw >> 1 <= _MANY_HEADERS else -1
