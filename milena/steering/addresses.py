"""Addresses of Unix sockets, which the system limits to fewer bytes than paths."""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 100
"""The length in bytes that every system accepts."""


@contextlib.contextmanager
def address(path: str) -> Iterator[str]:
    """Yield the address to bind or connect to for a socket at ``path``: a shorter path to the same file if
    necessary."""
    if len(os.fsencode(path)) <= LONGEST or not os.path.isdir("/proc/self/fd"):
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)
