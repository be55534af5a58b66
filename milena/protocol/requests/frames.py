"""Kafka's framing: an int32 length before each message. Sans I/O.

Bytes are received into one buffer that all connections of a process share; whole frames are handed out as views of
it. What is left of an unfinished frame is kept as a short tail, and copied to the front of the shared buffer when
more is read, so that a small frame is always contiguous there. A tail that outgrows ``TAIL_LIMIT`` moves to a
buffer of its own, which grows with the bytes that arrived, never with the length that was announced.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from struct import Struct
from typing import Final, Protocol, TypeAlias

from milena.protocol.requests.memory_budget import Holding, MemoryBudget, NoRoom

_LENGTH: Final = Struct(">i")

SHARED_SIZE: Final = 256 << 10
TAIL_LIMIT: Final = 16 << 10
"""Longest unfinished frame that is kept as a tail: it is copied with each read."""
FIRST_OWN_SIZE: Final = 128 << 10
SPARE_LIMIT: Final = 2 << 20
"""Bytes of finished own buffers that are kept for the next large frame."""


class SizedPart(Protocol):
    """Bytes that are not in memory, such as a range of a file (``runtime.network.FileRange``)."""

    @property
    def length(self) -> int: ...


Part: TypeAlias = bytes | bytearray | memoryview | SizedPart


class BadFrame(ValueError):
    """The peer's bytes are no frames, or more of them than may be held; the connection is to be closed."""


def _nobody(_reason: str) -> None:
    """For buffers whose budget no other connection shares."""


class ReceiveBuffers:
    """What the connections of one process share: the receive buffer, spare large buffers, the budget."""

    __slots__ = ("_spare", "_spare_bytes", "budget", "shared")

    def __init__(self, budget: MemoryBudget, shared_size: int = SHARED_SIZE) -> None:
        if shared_size <= TAIL_LIMIT:
            raise ValueError(f"a shared buffer of {shared_size} bytes cannot hold a tail and what follows it")
        self.budget = budget
        self.shared = memoryview(bytearray(shared_size))
        self._spare: list[memoryview] = []
        self._spare_bytes = 0

    def take(self, size: int) -> memoryview:
        """A buffer of at least ``size`` bytes with any content."""
        for index, buffer in enumerate(self._spare):
            if len(buffer) >= size:
                del self._spare[index]
                self._spare_bytes -= len(buffer)
                return buffer
        return memoryview(bytearray(size))

    def give(self, buffer: memoryview) -> None:
        """Keep a buffer for the next large frame, instead of the oldest ones where there are too many."""
        if len(buffer) > SPARE_LIMIT:
            return
        self._spare.append(buffer)
        self._spare_bytes += len(buffer)
        while self._spare_bytes > SPARE_LIMIT:
            self._spare_bytes -= len(self._spare.pop(0))


class FrameDecoder:
    """Cuts one connection's bytes into frames (``runtime.network.Framer``).

    An unfinished frame is in ``_tail`` or in ``_own``, never in both. The budget is charged with the bytes of the one
    and the size of the other.
    """

    __slots__ = (
        "_buffers", "_cutting", "_have", "_max_size", "_need", "_own", "_rest", "_rest_at", "_stopped", "_tail",
        "holding", "waiting",
    )  # fmt: skip

    def __init__(self, buffers: ReceiveBuffers, max_size: int, let_go: Callable[[str], object] = _nobody) -> None:
        """``let_go`` ends the connection where others need the room that its unfinished frame takes."""
        self._buffers = buffers
        self._max_size = max_size
        self._tail = b""
        self._own: memoryview | None = None
        self._have = 0
        self._need = 0
        self.holding = Holding(buffers.budget, let_go)
        """The unfinished frame in the budget."""
        self.waiting = Holding(buffers.budget, let_go)
        """What was read and put by, in the budget."""
        self._rest: bytearray | memoryview | None = None
        self._rest_at = 0
        self._cutting = self._stopped = False

    def get_buffer(self) -> memoryview:
        """Where the next bytes belong; never empty. Valid until another decoder of these buffers is asked."""
        if self._own is not None:
            return self._own[self._have : self._need]
        tail = self._tail
        if not tail:
            return self._buffers.shared
        self._buffers.shared[: len(tail)] = tail
        return self._buffers.shared[len(tail) :]

    def buffer_updated(self, count: int) -> Iterator[memoryview]:
        """Yield the frames that ``count`` new bytes complete, without their lengths.

        A frame is valid until the iterator goes on. Raises BadFrame for a length below zero or above the limit, and
        where the budget is used up.
        """
        if self._own is not None:
            self._have += count
            self.holding.moved(count)
            return self._cut_own(self._own)
        before = len(self._tail)
        self._tail = b""
        return self._cut_shared(before, before + count)

    def only_frame(self, count: int) -> memoryview | None:
        """The frame that ``count`` new bytes are, where they are one and no more, as they are mostly: a short way
        instead of ``buffer_updated``. None if they are something else, and nothing has happened."""
        if self._own is not None or self._tail or count < 4:
            return None
        shared = self._buffers.shared
        size = _LENGTH.unpack_from(shared)[0]
        return shared[4:count] if size == count - 4 and size <= self._max_size else None

    @property
    def has_rest(self) -> bool:
        return self._rest is not None

    def store(self, frame: memoryview) -> None:
        """Keep the frame that is being handled, and all that was read with it, for ``stored_frames``.

        Raises BadFrame if that exceeds the budget.
        """
        if self._cutting:
            self._stopped = True
            return
        rest = self._rest
        if not isinstance(rest, bytearray):
            rest = bytearray() if rest is None else bytearray(rest[self._rest_at :])
            self._rest_at = 0
        rest += _LENGTH.pack(len(frame))
        rest += frame
        self._keep(rest, len(rest))

    def stored_frames(self) -> Iterator[memoryview]:
        """The frames that were put by, as long as none is put by once more. Raises BadFrame as ``buffer_updated``."""
        rest = self._rest
        assert rest is not None
        view, end = memoryview(rest), len(rest)
        start = yield from self._frames_of(view, self._rest_at, end)
        if self._stopped:
            self._stopped = False
            self._rest_at = start
            return
        self._rest = None
        self._rest_at = 0
        self.waiting.hold(0)
        if start < end:
            self._buffers.shared[: end - start] = view[start:end]
            self._leave(0, end - start)

    def closed(self) -> None:
        """The connection is gone: give back what is held. Idempotent."""
        self._cutting = self._stopped = False
        self._tail = b""
        self._own = self._rest = None
        self.holding.close()
        self.waiting.close()

    def _frames_of(self, view: memoryview, start: int, end: int) -> Generator[memoryview, None, int]:
        """The whole frames between the two. Returns where the first one begins that is not whole, or was put by."""
        max_size = self._max_size
        self._cutting = True
        while end - start >= 4:
            size = _LENGTH.unpack_from(view, start)[0]
            if not 0 <= size <= max_size:
                self._cutting = False
                raise BadFrame(_refusal(size, max_size))
            stop = start + 4 + size
            if stop > end:
                break
            yield view[start + 4 : stop]
            if self._stopped:
                break
            start = stop
        self._cutting = False
        return start

    def _cut_shared(self, before: int, end: int) -> Iterator[memoryview]:
        shared = self._buffers.shared
        start = yield from self._frames_of(shared, 0, end)
        if start and before:
            self.holding.begins()
        elif before:
            self.holding.moved(end - before)
        if self._stopped:
            self._stopped = False
            self._charge(0)
            self._keep(bytearray(shared[start:end]), end - start)
        else:
            self._leave(start, end)

    def _leave(self, start: int, end: int) -> None:
        """Hold on to an unfinished frame in the shared buffer."""
        shared, have = self._buffers.shared, end - start
        if have <= TAIL_LIMIT:
            self._charge(have)
            if have:
                self._tail = bytes(shared[start:end])
        else:
            need = 4 + _LENGTH.unpack_from(shared, start)[0]
            self._move(shared[start:end], need, min(need, max(FIRST_OWN_SIZE, 2 * have)))

    def _cut_own(self, own: memoryview) -> Iterator[memoryview]:
        have, need = self._have, self._need
        if have == need:
            self._own = None
            self._charge(0)
            yield from self._frames_of(own, 0, need)
            if self._stopped:
                self._stopped = False
                self._keep(own[:need], len(own))
            else:
                self._buffers.give(own)
        elif have == len(own):
            self._move(own, need, min(need, 2 * have))
            self._buffers.give(own)

    def _keep(self, rest: bytearray | memoryview, size: int) -> None:
        """``size``: bytes of the memory that it takes."""
        try:
            self.waiting.hold(size)
        except NoRoom as error:
            reason = f"waiting requests: {error}"
            self.waiting.evict(reason)
            raise BadFrame(reason) from None
        self._rest, self._rest_at = rest, 0

    def _move(self, content: memoryview, need: int, size: int) -> None:
        """Hold on to an unfinished frame in a buffer of at least ``size`` bytes."""
        self._charge(size)
        own = self._buffers.take(size)
        own[: len(content)] = content
        self._own, self._have, self._need = own, len(content), need

    def _charge(self, held: int) -> None:
        try:
            self.holding.hold(held)
        except NoRoom as error:
            reason = f"an unfinished request: {error}"
            self.holding.evict(reason)
            raise BadFrame(reason) from None


def frame(parts: Sequence[Part]) -> list[Part]:
    """The parts of one message with their length in front."""
    size = 0
    for part in parts:
        size += part_length(part)
    return [_LENGTH.pack(size), *parts]


def part_length(part: Part) -> int:
    return len(part) if isinstance(part, (bytes, bytearray, memoryview)) else part.length


def _refusal(size: int, max_size: int) -> str:
    if size < 0:
        return f"a frame of {size} bytes"
    return f"a frame of {size} bytes is larger than {max_size} (socket.request.max.bytes)"
