"""The real disk where the simulated one has nothing to show: partial writes, unsynced renames, threads."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime.files import RealDisk


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system writes up to this size and then refuses, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("parts", [[b"12345678"], [b"12", b"345", b"678"]], ids=["one part", "three parts"])
def test_an_append_that_fails_halfway_leaves_the_file_as_it_was(tmp_path: Path, parts: list[bytes]) -> None:
    path = tmp_path / "f"
    file = RealDisk().open(str(path), create=True)
    file.append([b"before"])
    with largest_file(10), pytest.raises(OSError) as raised:
        file.append(parts)
    assert raised.value.errno == errno.EFBIG
    assert file.size == 6
    assert path.read_bytes() == b"before"
    assert file.append([b" and after"]) == 6
    assert path.read_bytes() == b"before and after"


def test_a_descriptor_is_closed_with_the_last_handle(tmp_path: Path) -> None:
    file = RealDisk().open(str(tmp_path / "f"), create=True)
    fd = file.fileno()
    handle = file.handle()
    file.close()
    assert os.fstat(fd)
    del handle
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_an_existing_file_counts_as_not_synced(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    file = RealDisk().open(str(tmp_path / "f"))
    assert (file.size, file.synced) == (3, 0)


def test_a_failed_atomic_write_keeps_the_old_content(tmp_path: Path) -> None:
    disk, path = RealDisk(), tmp_path / "f"
    disk.write_atomic(str(path), b"old")
    with largest_file(2), pytest.raises(OSError):
        disk.write_atomic(str(path), b"new content")
    assert path.read_bytes() == b"old"


async def test_offloaded_work_runs_in_another_thread() -> None:
    disk = RealDisk()
    assert await disk.offload(threading.get_ident) != threading.get_ident()
    disk.close()
    disk.close()
