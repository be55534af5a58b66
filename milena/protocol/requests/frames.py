"""Kafka's framing: an int32 length before each message. No I/O.

Bytes are received into one buffer that all connections of a process share; complete frames are views of it. The bytes
of an unfinished frame are kept as a tail, and copied to the front of the shared buffer before the next read, so that a
small frame is contiguous there. A tail of more than ``TAIL_LIMIT`` bytes is moved to a buffer of its own, which grows
with the received bytes, not with the announced length.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from struct import Struct
from typing import Final, Protocol, TypeAlias

from milena.protocol.requests.memory_budget import BudgetExceeded, BudgetShare, MemoryBudget

_LENGTH: Final = Struct(">i")

SHARED_SIZE: Final = 256 << 10
TAIL_LIMIT: Final = 16 << 10
"""Maximum bytes of an unfinished frame that is kept as a tail, which is copied with each read."""
FIRST_OWN_SIZE: Final = 128 << 10
SPARE_LIMIT: Final = 2 << 20
"""Maximum bytes of unused own buffers that are kept for later large frames."""


class SizedPart(Protocol):
    """Bytes that are not in memory, such as a range of a file (``runtime.network.FileRange``)."""

    @property
    def length(self) -> int: ...


Part: TypeAlias = bytes | bytearray | memoryview | SizedPart


class BadFrame(ValueError):
    """The bytes are not valid frames, or exceed the memory budget; the connection must be closed."""


def _no_eviction(_reason: str) -> None:
    """Do nothing: for buffers whose budget is used by one connection only."""


class ReceiveBuffers:
    """The buffers that all connections of a server share: the receive buffer, unused large buffers, the memory
    budget."""

    __slots__ = ("_spare", "_spare_bytes", "budget", "shared")

    def __init__(self, budget: MemoryBudget, shared_size: int = SHARED_SIZE) -> None:
        if shared_size <= TAIL_LIMIT:
            raise ValueError(f"a shared buffer of {shared_size} bytes cannot hold a tail and more bytes")
        self.budget = budget
        self.shared = memoryview(bytearray(shared_size))
        self._spare: list[memoryview] = []
        self._spare_bytes = 0

    def take(self, size: int) -> memoryview:
        """Return a buffer of at least ``size`` bytes with arbitrary content."""
        for index, buffer in enumerate(self._spare):
            if len(buffer) >= size:
                del self._spare[index]
                self._spare_bytes -= len(buffer)
                return buffer
        return memoryview(bytearray(size))

    def give(self, buffer: memoryview) -> None:
        """Keep an unused buffer for a later large frame. The oldest ones are dropped beyond SPARE_LIMIT."""
        if len(buffer) > SPARE_LIMIT:
            return
        self._spare.append(buffer)
        self._spare_bytes += len(buffer)
        while self._spare_bytes > SPARE_LIMIT:
            self._spare_bytes -= len(self._spare.pop(0))


class FrameDecoder:
    """Splits one connection's bytes into frames (``runtime.network.Framer``).

    An unfinished frame is in ``_tail`` or in ``_own``, never in both. The budget counts the bytes of the tail, or the
    size of the own buffer.
    """

    __slots__ = (
        "_buffers",
        "_have",
        "_max_size",
        "_need",
        "_own",
        "_splitting",
        "_stopped",
        "_stored",
        "_stored_position",
        "_tail",
        "stored_share",
        "unfinished_share",
    )  # fmt: skip

    def __init__(
        self, buffers: ReceiveBuffers, max_size: int, on_evict: Callable[[str], object] = _no_eviction
    ) -> None:
        """``on_evict`` closes the connection if other connections need the memory of its frames; it takes the
        reason."""
        self._buffers = buffers
        self._max_size = max_size
        self._tail = b""
        self._own: memoryview | None = None
        self._have = 0
        self._need = 0
        self.unfinished_share = BudgetShare(buffers.budget, on_evict)
        """The budget's share of the unfinished frame."""
        self.stored_share = BudgetShare(buffers.budget, on_evict)
        """The budget's share of the stored frames."""
        self._stored: bytearray | memoryview | None = None
        self._stored_position = 0
        self._splitting = self._stopped = False

    def get_buffer(self) -> memoryview:
        """Return the memory for the next bytes, never empty. It is valid until the next call on any decoder of these
        buffers."""
        if self._own is not None:
            return self._own[self._have : self._need]
        tail = self._tail
        if not tail:
            return self._buffers.shared
        self._buffers.shared[: len(tail)] = tail
        return self._buffers.shared[len(tail) :]

    def buffer_updated(self, count: int) -> Iterator[memoryview]:
        """Yield the frames that ``count`` new bytes complete, without their lengths.

        A frame is valid until the next one is requested. Raises BadFrame for a length below zero or above the limit,
        and if the budget is used up.
        """
        if self._own is not None:
            self._have += count
            self.unfinished_share.transferred(count)
            return self._split_own(self._own)
        before = len(self._tail)
        self._tail = b""
        return self._split_shared(before, before + count)

    def only_frame(self, count: int) -> memoryview | None:
        """Return the frame if the ``count`` new bytes are exactly one frame, which is the most frequent case: a fast
        path before ``buffer_updated``. Otherwise return None without a change."""
        if self._own is not None or self._tail or count < 4:
            return None
        shared = self._buffers.shared
        size = _LENGTH.unpack_from(shared)[0]
        return shared[4:count] if size == count - 4 and size <= self._max_size else None

    @property
    def has_stored(self) -> bool:
        return self._stored is not None

    def store(self, frame: memoryview) -> None:
        """Store the frame that was yielded last, and all bytes after it, for ``stored_frames``.

        Raises BadFrame if they exceed the budget.
        """
        if self._splitting:
            self._stopped = True
            return
        rest = self._stored
        if not isinstance(rest, bytearray):
            rest = bytearray() if rest is None else bytearray(rest[self._stored_position :])
            self._stored_position = 0
        rest += _LENGTH.pack(len(frame))
        rest += frame
        self._store_bytes(rest, len(rest))

    def stored_frames(self) -> Iterator[memoryview]:
        """Yield the stored frames, until one is stored again. Raises BadFrame as ``buffer_updated`` does."""
        rest = self._stored
        assert rest is not None
        view, end = memoryview(rest), len(rest)
        start = yield from self._frames_of(view, self._stored_position, end)
        if self._stopped:
            self._stopped = False
            self._stored_position = start
            return
        self._stored = None
        self._stored_position = 0
        self.stored_share.hold(0)
        if start < end:
            self._buffers.shared[: end - start] = view[start:end]
            self._keep_unfinished(0, end - start)

    def closed(self) -> None:
        """Release all memory after the connection was closed. Idempotent."""
        self._splitting = self._stopped = False
        self._tail = b""
        self._own = self._stored = None
        self.unfinished_share.close()
        self.stored_share.close()

    def _frames_of(self, view: memoryview, start: int, end: int) -> Generator[memoryview, None, int]:
        """Yield the complete frames in ``view[start:end]``. Returns the position of the first frame that is incomplete
        or was stored."""
        max_size = self._max_size
        self._splitting = True
        while end - start >= 4:
            size = _LENGTH.unpack_from(view, start)[0]
            if not 0 <= size <= max_size:
                self._splitting = False
                raise BadFrame(_size_error(size, max_size))
            stop = start + 4 + size
            if stop > end:
                break
            yield view[start + 4 : stop]
            if self._stopped:
                break
            start = stop
        self._splitting = False
        return start

    def _split_shared(self, before: int, end: int) -> Iterator[memoryview]:
        shared = self._buffers.shared
        start = yield from self._frames_of(shared, 0, end)
        if start and before:
            self.unfinished_share.restart()
        elif before:
            self.unfinished_share.transferred(end - before)
        if self._stopped:
            self._stopped = False
            self._charge(0)
            self._store_bytes(bytearray(shared[start:end]), end - start)
        else:
            self._keep_unfinished(start, end)

    def _keep_unfinished(self, start: int, end: int) -> None:
        """Keep the unfinished frame in ``shared[start:end]``: as the tail, or in a buffer of its own if it is long."""
        shared, have = self._buffers.shared, end - start
        if have <= TAIL_LIMIT:
            self._charge(have)
            if have:
                self._tail = bytes(shared[start:end])
        else:
            need = 4 + _LENGTH.unpack_from(shared, start)[0]
            self._move_to_own(shared[start:end], need, min(need, max(FIRST_OWN_SIZE, 2 * have)))

    def _split_own(self, own: memoryview) -> Iterator[memoryview]:
        have, need = self._have, self._need
        if have == need:
            self._own = None
            self._charge(0)
            yield from self._frames_of(own, 0, need)
            if self._stopped:
                self._stopped = False
                self._store_bytes(own[:need], len(own))
            else:
                self._buffers.give(own)
        elif have == len(own):
            self._move_to_own(own, need, min(need, 2 * have))
            self._buffers.give(own)

    def _store_bytes(self, rest: bytearray | memoryview, size: int) -> None:
        """Keep frames for ``stored_frames``. ``size``: bytes of memory to count. Raises BadFrame."""
        try:
            self.stored_share.hold(size)
        except BudgetExceeded as error:
            reason = f"waiting requests: {error}"
            self.stored_share.evict(reason)
            raise BadFrame(reason) from None
        self._stored, self._stored_position = rest, 0

    def _move_to_own(self, content: memoryview, need: int, size: int) -> None:
        """Keep an unfinished frame of ``need`` bytes in a buffer of at least ``size`` bytes. Raises BadFrame."""
        self._charge(size)
        own = self._buffers.take(size)
        own[: len(content)] = content
        self._own, self._have, self._need = own, len(content), need

    def _charge(self, held: int) -> None:
        """Count ``held`` bytes of the unfinished frame in the budget. Raises BadFrame."""
        try:
            self.unfinished_share.hold(held)
        except BudgetExceeded as error:
            reason = f"an unfinished request: {error}"
            self.unfinished_share.evict(reason)
            raise BadFrame(reason) from None


def frame(parts: Sequence[Part]) -> list[Part]:
    """Return the parts of one message, after their length."""
    size = 0
    for part in parts:
        size += part_length(part)
    return [_LENGTH.pack(size), *parts]


def part_length(part: Part) -> int:
    """Return the size of a part in bytes."""
    return len(part) if isinstance(part, (bytes, bytearray, memoryview)) else part.length


def _size_error(size: int, max_size: int) -> str:
    if size < 0:
        return f"a frame of {size} bytes"
    return f"a frame of {size} bytes is larger than {max_size} (socket.request.max.bytes)"
