"""Exclusive locks by flock: held by an open descriptor, released when the process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from milena.command_line.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def acquire(path: str) -> int | None:
    """Return the descriptor that holds the lock, or None if another process holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


@contextlib.contextmanager
def waiting(path: str) -> Iterator[None]:
    """Hold the lock within the block; wait while another process or thread holds it. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def is_held(path: str) -> bool:
    """Return whether a process holds the lock of an existing file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # users without write access may check too
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def wait_released(paths: list[str], seconds: float) -> str | None:
    """Wait until none of the locks is held. Return one that is still held after ``seconds``, else None."""
    deadline = time.monotonic() + seconds
    while held := next((path for path in paths if is_held(path)), None):
        if time.monotonic() > deadline:
            return held
        time.sleep(0.02)  # flock has no timeout
    return None


def lock_directory(path: str, lock: str) -> int:
    """Lock a cluster's directory. Raises UserError if another `milena up` has locked it."""
    try:
        fd = acquire(lock)
    except OSError as error:
        raise UserError(f"cannot write below {path}: {error.strerror}") from None
    if fd is None:
        raise UserError(f"{path} is in use by another `milena up` (milena down --dir {path} stops it)")
    return fd
