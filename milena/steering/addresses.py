"""Addresses of Unix sockets, whose length the system bounds more tightly than that of paths."""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 100
"""Bytes that every system takes."""


@contextlib.contextmanager
def address(path: str) -> Iterator[str]:
    """What to bind or connect to for a socket at ``path``: a shorter way to the same file where there must be one."""
    if len(os.fsencode(path)) <= LONGEST or not os.path.isdir("/proc/self/fd"):
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)
