"""A job's folder is one job's at a time: a lock (flock) in it, which ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from milena.pipeline.errors import PipelineError

LOCK: Final = "job.lock"
_LEFT: Final = frozenset({LOCK, "job.json.new", "export.json.part"})
"""What a job leaves that ended before it had begun."""


def others(folder: str) -> list[str]:
    """What is in the folder, but for a job that had not begun; nothing if there is none. Raises PipelineError."""
    try:
        return sorted(set(os.listdir(folder)) - _LEFT)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unusable(folder, error) from None


@contextmanager
def held(folder: str, state: str, what: str) -> Iterator[None]:
    """Make the folder if need be, and keep other jobs out of it. One that has something and not the file ``state`` is
    not touched: it has no ``what``.

    Raises PipelineError, also for what the system says of the folder."""
    there = others(folder)
    if there and state not in there:
        raise PipelineError(f"{folder} is not empty, and has no {what}: name another folder")
    try:
        os.makedirs(folder, exist_ok=True)
        lock = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(f"another job is at work in {folder}: wait for it, or name another folder") from None
        except OSError as error:
            raise _unusable(folder, error) from None
        yield
    finally:
        os.close(lock)


def _unusable(folder: str, error: OSError) -> PipelineError:
    return PipelineError(f"{folder} cannot be written to: {error.strerror or error}")
