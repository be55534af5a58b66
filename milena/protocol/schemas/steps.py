"""Messages of many elements, read and written with pauses between them.

What yields between its steps can be run at once (``at_once``) or with other work in between
(``milena/node/serving/sliced_work.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from milena.protocol.schemas.primitives import Reader, Writer

T = TypeVar("T")
R = TypeVar("R")
Steps: TypeAlias = Generator[None, None, R]
"""Work that pauses where it yields; it returns its result."""

STEP: Final = 500
"""Elements that are read or written without a pause: one or two milliseconds."""


def at_once(steps: Steps[R]) -> R:
    """The result of ``steps``, without pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: R = done.value
            return result


class Pace:
    """Counts elements up to the next pause."""

    __slots__ = ("_step", "left")

    def __init__(self, step: int = STEP) -> None:
        self.left = self._step = step

    def is_over(self, elements: int) -> bool:
        """Whether to pause after so many more."""
        self.left -= elements
        if self.left > 0:
            return False
        self.left = self._step
        return True

    def each(self, items: Iterable[T], work: Callable[[T], R]) -> Steps[list[R]]:
        """Apply ``work`` to each item, in order. State may change in a pause."""
        done: list[R] = []
        for item in items:
            done.append(work(item))
            if self.is_over(1):
                yield
        return done


class Stepped(Protocol):
    """The codec of a struct that has arrays."""

    def read_in_steps(self, reader: Reader, pace: Pace) -> Steps[object]: ...
    def write_in_steps(self, writer: Writer, value: object, pace: Pace) -> Steps[None]: ...


class Elements(NamedTuple):
    """The elements of an array."""

    begin_read: Callable[[Reader], int | None]
    """Returns their number, None for a null array."""
    begin_write: Callable[[Writer, Any], bool]
    """Returns whether there are any to be written."""
    read: Callable[[Reader], object]
    write: Callable[[Writer, Any], None]
    struct: Stepped | None
    """For elements that have arrays themselves."""


def read_elements(elements: Elements, reader: Reader, pace: Pace) -> Steps[tuple[object, ...] | None]:
    """An array. Raises DecodeError."""
    count = elements.begin_read(reader)
    if count is None:
        return None
    found: list[object] = []
    while (missing := count - len(found)) > 0:
        some = 1
        if elements.struct is None:
            some = min(missing, pace.left)
            found += [elements.read(reader) for _ in range(some)]
        else:
            found.append((yield from elements.struct.read_in_steps(reader, pace)))
        if pace.is_over(some):
            yield
    return tuple(found)


def write_elements(elements: Elements, writer: Writer, value: Any, pace: Pace) -> Steps[None]:  # noqa: ANN401 - elements of any type
    """Append an array."""
    if not elements.begin_write(writer, value):
        return
    for item in value:
        if elements.struct is None:
            elements.write(writer, item)
        else:
            yield from elements.struct.write_in_steps(writer, item, pace)
        if pace.is_over(1):
            yield
