"""The real disk where the simulated one has nothing to show: partial writes, unsynced renames, threads."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from milena.runtime.disk import File
from milena.runtime.files import NOT_BY_SENDFILE, RealDisk


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


def from_and_to(folder: Path) -> tuple[File, File]:
    (folder / "from").write_bytes(b"0123456789")
    source, target = RealDisk().open(str(folder / "from")), RealDisk().open(str(folder / "to"), create=True)
    target.append([b"before"])
    return source, target


def test_a_part_of_another_file_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    source, target = from_and_to(tmp_path)
    with largest_file(10), pytest.raises(OSError) as raised:
        target.append_from(source, 10, 0)
    assert raised.value.errno == errno.EFBIG
    assert (target.size, (tmp_path / "to").read_bytes()) == (6, b"before")
    assert target.append_from(source, 10, 5) == 5
    assert (tmp_path / "to").read_bytes() == b"before56789"


def test_a_part_of_another_file_does_not_pass_through_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise AssertionError

    source, target = from_and_to(tmp_path)
    monkeypatch.setattr(os, "pread", refuse)
    monkeypatch.setattr(os, "pwrite", refuse)
    assert target.append_from(source, 4, 0) == 4
    assert (tmp_path / "to").read_bytes() == b"before0123"


def test_the_system_may_append_less_at_a_time_than_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = from_and_to(tmp_path)
    sendfile = os.sendfile
    monkeypatch.setattr(os, "sendfile", lambda to, of, position, count: sendfile(to, of, position, min(count, 3)))
    assert target.append_from(source, 8, 1) == 8
    assert (tmp_path / "to").read_bytes() == b"before12345678"


@pytest.mark.parametrize("after", [0, 1], ids=["at once", "halfway"])
@pytest.mark.parametrize("number", sorted(NOT_BY_SENDFILE), ids=errno.errorcode.get)
def test_if_the_system_cannot_append_from_a_file_it_is_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, after: int
) -> None:
    source, target = from_and_to(tmp_path)
    sendfile = os.sendfile
    calls: list[int] = []

    def sometimes(to: int, of: int, position: int, count: int) -> int:
        calls.append(count)
        if len(calls) > after:
            raise OSError(number, os.strerror(number))
        return sendfile(to, of, position, 2)

    monkeypatch.setattr(os, "sendfile", sometimes)
    assert target.append_from(source, 8, 1) == 8
    assert (target.append_from(source, 8, 10), target.size) == (0, 14)
    assert (tmp_path / "to").read_bytes() == b"before12345678"


def test_a_disk_that_fails_is_not_asked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = from_and_to(tmp_path)

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "sendfile", fail)
    with pytest.raises(OSError, match="Input/output error"):
        target.append_from(source, 8, 1)
    assert (target.size, (tmp_path / "to").read_bytes()) == (6, b"before")


def test_a_file_that_was_opened_for_appending_takes_parts_of_others(tmp_path: Path) -> None:
    """The system's sendfile refuses those."""
    source, target = from_and_to(tmp_path)
    fcntl.fcntl(target.fileno(), fcntl.F_SETFL, os.O_APPEND)
    assert target.append_from(source, 4, 0) == 4
    assert (tmp_path / "to").read_bytes() == b"before0123"


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
