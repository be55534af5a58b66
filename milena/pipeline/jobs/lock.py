"""The lock (flock) of a job's folder, so that one job at a time uses it. The lock is released when the process ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from milena.pipeline.errors import PipelineError

LOCK: Final = "job.lock"
_LEFT: Final = frozenset({LOCK, "job.json.new", "export.json.part"})
"""The files that a job may leave if it ends before it has started its work."""


def other_files(folder: str) -> list[str]:
    """Return the names in a folder except those in ``_LEFT``; empty if there is no folder. Raises PipelineError."""
    try:
        return sorted(set(os.listdir(folder)) - _LEFT)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unusable(folder, error) from None


@contextmanager
def locked_folder(folder: str, state: str, what: str) -> Iterator[None]:
    """Create the folder if necessary, and lock it. ``state``: the job's state file; ``what``: the job's results, for
    the message. A folder that has other files but no state file is refused.

    Raises PipelineError, also for errors of the file system."""
    there = other_files(folder)
    if there and state not in there:
        raise PipelineError(f"{folder} is not empty and does not contain {what}: name another folder")
    try:
        os.makedirs(folder, exist_ok=True)
        lock = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(f"another job uses {folder}: wait for it, or name another folder") from None
        except OSError as error:
            raise _unusable(folder, error) from None
        yield
    finally:
        os.close(lock)


def _unusable(folder: str, error: OSError) -> PipelineError:
    return PipelineError(f"{folder} cannot be written to: {error.strerror or error}")
