"""Exclusive locks by flock: held by an open descriptor, gone with the process."""

from __future__ import annotations

import fcntl
import os
import time

from milena.command_line.errors import UserError


def acquire(path: str) -> int | None:
    """The descriptor that holds the lock, or None if another process has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def is_held(path: str) -> bool:
    """Whether some process holds the lock of an existing file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # others may look who cannot write
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
    """Wait until nobody holds any of the locks; returns one that is still held when the time is over."""
    deadline = time.monotonic() + seconds
    while held := next((path for path in paths if is_held(path)), None):
        if time.monotonic() > deadline:
            return held
        time.sleep(0.02)  # flock has no time limit of its own
    return None


def lock_directory(path: str, lock: str) -> int:
    """Take a cluster's directory. Raises UserError if another `milena up` has it."""
    try:
        fd = acquire(lock)
    except OSError as error:
        raise UserError(f"cannot write below {path}: {error.strerror}") from None
    if fd is None:
        raise UserError(f"{path} is in use by another `milena up` (milena down --dir {path} stops it)")
    return fd
