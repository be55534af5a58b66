"""What a worker of the leader does of a result: it cleans the sources again, by the winners that it was told, without a
map of keys, and compares what comes of it with what was made. Then it sees that the winners are true (``keys``).

So a result that is found right is what the leader's own cleaning would have written with a map of the whole window; the
compressed bytes alone may be another library's.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from milena.protocol.records.batch import BatchView, Codec, CorruptBatch
from milena.protocol.records.compression import DecompressionBomb
from milena.protocol.records.record_cursor import RecordCursor
from milena.protocol.types import Offset
from milena.runtime.disk import Bytes, Disk, File, Report
from milena.storage.cleaning.cleaned_segment import CleanedSegment
from milena.storage.cleaning.retained import Retained, Rules
from milena.storage.cleaning.rewriting import Rewriting, has_changed
from milena.storage.cleaning.round import Figures, NewSegment
from milena.storage.cleaning.source import SegmentToClean, open_log, read_batches
from milena.storage.cleaning.transactions import CleanedTransactions
from milena.storage.cleaning.work import Work, aborted_in
from milena.storage.files.names import LOG, segment_file
from milena.storage.files.txn_index import AbortedTxn
from milena.tiered.cleaning.files import MADE, WINNERS
from milena.tiered.orders.keys import ENTRY, WINNER, MemberSum, SortedEntries, key_hash
from milena.tiered.orders.made_log import MadeLog

KEYS: Final = "keys"
PIECE: Final = ENTRY.size << 15
_SLACK: Final = 4 << 10
"""Bytes that a small batch may have more if another library has compressed it; a large one may be twice as large."""


class ResultRefused(Exception):
    """What was made of an order is not right; the text says why."""


class CheckGroup(NamedTuple):
    """An order: compare a group. ``size``: of what was made (bytes), None if nothing has changed."""

    sources: tuple[SegmentToClean, ...]
    end: Offset
    deletes_at: int | None
    size: int | None


class CheckKeys(NamedTuple):
    """An order: read the next sorted entries, in the file KEYS."""


class Agree(NamedTuple):
    """An order: all was read; see whether the winners are true."""


class Index(NamedTuple):
    """An order: make the files of the segment that takes the place of a group, which was found right before."""

    first: Offset
    end: Offset
    size: int


class Right(NamedTuple):
    """So far."""

    figures: Figures


class Indexed(NamedTuple):
    """The files of ``segment`` end in ``.cleaned``."""

    segment: NewSegment


CheckStep: TypeAlias = Right | Indexed
CheckOrder: TypeAlias = CheckGroup | CheckKeys | Agree | Index


def check_result(
    disk: Disk, report: Report, work: Work, secret: bytes, own_secret: bytes
) -> Generator[CheckStep, CheckOrder, None]:
    """Follows orders: all groups from the oldest on, the keys, Agree; then Index. ``secret``: the order's;
    ``own_secret``: drawn after the result was there. Reports bytes. Raises ResultRefused, CorruptBatch and CorruptIndex
    of sources, OffsetOverflow, OSError."""
    checker = _Checker(disk, report, work, secret, own_secret)
    found: CheckStep = Right(checker.figures)
    while True:
        told = yield found
        match told:
            case CheckGroup():
                checker.group(told)
            case CheckKeys():
                checker.keys()
            case Agree():
                checker.agree()
            case Index():
                found = Indexed(checker.index(told))
                continue
        found = Right(checker.figures)


class _Winners:
    """The winners of one group, as they were told. Each is added to what has to agree."""

    def __init__(self, secret: bytes, members: MemberSum) -> None:
        self._secret = secret
        self._members = members
        self._file: File | None = None
        self._at = 0
        self._held = memoryview(b"")
        self._begin = 0

    def open(self, file: File) -> None:
        self._file, self._at, self._held, self._begin = file, 0, memoryview(b""), 0

    def latest(self, key: bytes, offset: int) -> int:
        if self._begin >= len(self._held):
            assert self._file is not None
            self._held, self._begin = memoryview(self._file.pread(PIECE, self._at)), 0
            self._at += len(self._held)
        if len(self._held) - self._begin < WINNER.size:
            raise ResultRefused(f"no winner is told for the record at {offset}")
        winner = int(WINNER.unpack_from(self._held, self._begin)[0])
        self._begin += WINNER.size
        self._members.add(key_hash(key, self._secret), offset, winner)
        return winner

    @property
    def left(self) -> int:
        """Bytes that were not read."""
        assert self._file is not None
        return self._file.size - self._at + len(self._held) - self._begin


class _Checker:
    def __init__(self, disk: Disk, report: Report, work: Work, secret: bytes, own_secret: bytes) -> None:
        self._disk = disk
        self._report = report
        self._work = work
        self._members = MemberSum(own_secret)
        self._sorted = SortedEntries(own_secret)
        self._winners = _Winners(secret, self._members)
        first, end = work.segments[0].base_offset, work.end
        self._transactions = CleanedTransactions(aborted_in(disk, work, first, end))
        rules = Rules(self._winners, end, end, 0, work.delete_retention_ms, work.producers, work.limit)
        self._retained = Retained(rules, self._transactions)
        self._rewriting = Rewriting(self._retained)
        self._digests: dict[Offset, bytes] = {}
        self._largest: dict[Offset, int] = {}
        """Bytes of the largest batch of a group that was found right."""
        self._aborted: dict[Offset, list[AbortedTxn]] = {}
        self._following = dict(
            zip(
                (one.base_offset for one in work.segments),
                (one.base_offset for one in work.segments[1:]),
                strict=False,
            )
        )
        self._read = self._written = 0

    @property
    def figures(self) -> Figures:
        """Bytes that were read are those of the sources."""
        kept = self._retained
        return Figures(kept.read, 0, 0.0, kept.read, kept.kept, kept.without_key, self._read, self._written)

    def group(self, told: CheckGroup) -> None:
        first = told.sources[0].base_offset
        self._largest[first] = 0
        self._retained.now = told.deletes_at
        digest = blake2b()
        with closing(self._disk.open(self._path(first, WINNERS), read_only=True)) as winners:
            self._winners.open(winners)
            if told.size is None:
                changed = sum(has_changed(batch, data) for batch, data in self._rewritten(told.sources)) > 0
            else:
                with closing(self._disk.open(self._path(first, LOG + MADE), read_only=True)) as file:
                    changed = self._compare(told, self._made(file, first, told.size, told.end), digest)
            if self._winners.left:
                raise ResultRefused(f"winners are told of more records than there are from offset {first} on")
        if changed != (told.size is not None):
            what = "was made" if told.size is not None else "was not made"
            raise ResultRefused(
                f"the cleaning of the offsets from {first} on {what}, and has changed {changed:d} batches"
            )
        self._aborted[first], self._transactions.kept = self._transactions.kept, []
        self._digests[first] = digest.digest()

    def _rewritten(self, sources: tuple[SegmentToClean, ...]) -> Iterator[tuple[BatchView, Bytes]]:
        """Each batch, and what takes its place."""
        for source in sources:
            with closing(open_log(self._disk, self._work.folder, source)) as file:
                following = self._following[source.base_offset]
                for batch in read_batches(file, source, following, chunk=self._work.chunk):
                    self._read += batch.size_in_bytes
                    self._report(batch.size_in_bytes)
                    yield batch, self._rewriting.of(batch)

    def _compare(self, told: CheckGroup, made: MadeLog, digest: blake2b) -> bool:
        """Whether a batch has changed."""
        changed, first = False, told.sources[0].base_offset
        for batch, data in self._rewritten(told.sources):
            changed = has_changed(batch, data) or changed
            if not len(data):
                continue
            found = _next(made, 2 * len(data) + _SLACK)
            if found is None or not same(data, found, self._work.limit):
                what = "is missing" if found is None else f"is another one, at {found.base_offset}"
                raise ResultRefused(f"what is to become of the batch at {batch.base_offset} {what}")
            digest.update(found.memory)
            self._largest[first] = max(self._largest[first], found.size_in_bytes)
            self._report(found.size_in_bytes)
        left = _next(made, self._work.chunk)
        if left is not None:
            raise ResultRefused(f"the batch at {left.base_offset} comes from no source")
        return changed

    def _made(self, file: File, first: Offset, size: int, end: Offset) -> MadeLog:
        return MadeLog(file, SegmentToClean(first, size), end, self._work.chunk)

    def keys(self) -> None:
        with closing(self._disk.open(f"{self._work.folder}/{KEYS}", read_only=True)) as file:
            if file.size % ENTRY.size:
                raise ResultRefused(f"{file.size} bytes of keys are not whole entries")
            for at in range(0, file.size, PIECE):
                data = file.pread(min(PIECE, file.size - at), at)
                self._report(len(data))
                try:
                    self._sorted.take(data)
                except ValueError as error:
                    raise ResultRefused(str(error)) from None

    def agree(self) -> None:
        if self._members.total != self._sorted.members.total:
            raise ResultRefused("the winners are not the last offsets of their keys")

    def index(self, told: Index) -> NewSegment:
        first, digest = told.first, blake2b()
        new = CleanedSegment(self._disk, self._work.folder, first, self._work.index_interval)
        try:
            with closing(self._disk.open(self._path(first, LOG + MADE), read_only=True)) as file:
                made = self._made(file, first, told.size, told.end)
                while (batch := _next(made, self._largest[first])) is not None:
                    digest.update(batch.memory)
                    new.append(batch.memory)
                    self._report(batch.size_in_bytes)
            if digest.digest() != self._digests[first]:
                raise ResultRefused(f"what was made of the offsets from {first} on is not what it was")
            kept = self._aborted[first]
            new.complete(kept, self._disk.modified_ms(self._path(first, LOG + MADE)))
        except BaseException:
            new.close()
            new.remove()
            raise
        self._written += new.size
        return NewSegment(first, new.size, (first,), True, new.largest_timestamp, bool(kept))

    def _path(self, first: Offset, suffix: str) -> str:
        return f"{self._work.folder}/{segment_file(first, suffix)}"


def _next(made: MadeLog, most: int) -> BatchView | None:
    """Raises ResultRefused."""
    try:
        return made.next(most)
    except CorruptBatch as error:
        raise ResultRefused(str(error)) from None


def same(data: Bytes, found: BatchView, limit: int) -> bool:
    """Whether ``found`` is the batch ``data``, whatever bytes a compression has made of its records."""
    if found.memory == data:
        return True
    expected = BatchView(memoryview(data))
    if _header(expected) != _header(found):
        return False
    try:
        if found.codec is Codec.NONE:
            return False
        one, other = RecordCursor(expected, limit), RecordCursor(found, limit)
        while one.advance():
            if not other.advance() or one.encoded != other.encoded:
                return False
        return not other.advance()
    except (CorruptBatch, DecompressionBomb):
        return False


def _header(batch: BatchView) -> tuple[int, ...]:
    return (
        batch.base_offset,
        batch.leader_epoch,
        batch.magic,
        batch.attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.count,
    )
