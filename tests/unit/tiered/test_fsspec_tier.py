"""The tier through fsspec: how a store is reached, what its library's errors mean, and how it is written and read."""

from __future__ import annotations

import asyncio
import errno
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from milena.tiered.store.fsspec_system import FileSystem, is_object_store, library_errors, modified_ms
from milena.tiered.store.fsspec_tier import FsspecSettings, FsspecTier
from milena.tiered.store.remote_storage import (
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tests.contract.tiers import LOG, object_path, segment
from tests.contract.worlds import Surroundings
from tests.unit.tiered.recording_store import Recording, RecordingStore, really, settings, sources


def suffixes(system: Recording, kind: str) -> list[str]:
    """What was done, by the suffix of the object."""
    return [path.rpartition("/")[2].partition(".")[2] for call, path in system.calls if call == kind]


def test_a_url_is_enough(tmp_path: Path) -> None:
    async def body(it: Surroundings) -> None:
        for url in (f"memory://url{tmp_path}", f"file://{tmp_path}/tier", f"local://{tmp_path}/other"):
            tier = FsspecTier(it.runtime, settings(url), "1")
            await tier.start()
            await tier.copy(segment(1), sources(tmp_path))
            assert await (await tier.fetch(segment(1), 5, 2000)).read() == LOG[5:2001]
            await tier.close()
        assert (tmp_path / "tier" / object_path(segment(1), ".log")).read_bytes() == LOG

    really(body, tmp_path)


@pytest.mark.parametrize("url", ["nonsense://bucket", "sftp-unknown://host/x"])
def test_a_store_that_fsspec_does_not_know_is_refused_for_good(tmp_path: Path, url: str) -> None:
    async def body(it: Surroundings) -> None:
        tier = FsspecTier(it.runtime, settings(url), "1")
        for _ in range(2):
            with pytest.raises(RemoteStorageError, match="cannot reach") as raised:
                await tier.start()
            assert type(raised.value) is RemoteStorageError
        tier.expect(segment(1))
        await tier.close()

    really(body, tmp_path)


@pytest.mark.parametrize("kind", [Recording, RecordingStore])
def test_the_log_appears_last_and_goes_first(tmp_path: Path, kind: type[Recording]) -> None:
    async def body(it: Surroundings) -> None:
        system = kind()
        tier = FsspecTier(it.runtime, settings("/tier"), "1", system=cast("FileSystem", system))
        await tier.start()
        await tier.copy(segment(1), sources(tmp_path))
        appeared = suffixes(system, "put" if kind is RecordingStore else "move")
        assert appeared == ["index", "timeindex", "snapshot", "txnindex", "leader_epoch_checkpoint", "log"]
        assert bool(suffixes(system, "move")) is (kind is Recording), "an object store needs no second name"
        await tier.delete(segment(1))
        assert suffixes(system, "delete")[-7:] == [*appeared[::-1], "metadata"]
        await tier.close()

    really(body, tmp_path)


def test_a_deleted_segment_is_not_served_from_memory(tmp_path: Path) -> None:
    async def body(it: Surroundings) -> None:
        system = RecordingStore()
        plain = FsspecSettings("/gone", {}, chunk=1000, cache=5000, ahead=0)
        tier = FsspecTier(it.runtime, plain, "1", system=cast("FileSystem", system))
        await tier.copy(segment(1), sources(tmp_path))
        for _ in range(3):
            await (await tier.fetch(segment(1), 0, 99)).read()
        assert suffixes(system, "get") == ["log"]
        await tier.delete(segment(1))
        with pytest.raises(RemoteResourceNotFound):
            await (await tier.fetch(segment(1), 0, 99)).read()
        await tier.close()

    really(body, tmp_path)


def test_a_hanging_store_delays_no_other_work(tmp_path: Path) -> None:
    """Its calls run in the tier's threads, not in those of the logs."""

    async def body(it: Surroundings) -> None:
        import threading

        answer = threading.Event()

        class Hanging(RecordingStore):
            def cat_file(
                self, path: str, version_id: str = "", start: int | None = None, end: int | None = None
            ) -> bytes:
                answer.wait(30)
                return super().cat_file(path, version_id, start, end)

        tier = FsspecTier(it.runtime, settings("/hang"), "1", system=cast("FileSystem", Hanging()))
        await tier.copy(segment(1), sources(tmp_path))
        loop = asyncio.get_running_loop()
        readers = [loop.create_task((await tier.fetch(segment(1), 1000 * at, 1000 * at + 9)).read()) for at in range(9)]
        async with asyncio.timeout(10):
            assert await it.runtime.disk.offload(max, 1, 2) == 2
        assert not any(reader.done() for reader in readers)
        answer.set()
        for at, reader in enumerate(readers):
            assert await reader == LOG[1000 * at : 1000 * at + 10]
        await tier.close()

    really(body, tmp_path)


class LibraryError(Exception):
    """What a store's library raises beside OSErrors."""


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (FileNotFoundError("s3 gives no number"), RemoteResourceNotFound),
        (OSError(errno.ENOENT, "no such key"), RemoteResourceNotFound),
        (PermissionError("access denied"), RemoteStorageError),
        (OSError(errno.EROFS, "read-only"), RemoteStorageError),
        (OSError(errno.ENOSPC, "full"), RetriableRemoteStorageError),
        (OSError(errno.EIO, "slow down"), RetriableRemoteStorageError),
        (TimeoutError("too slow"), RetriableRemoteStorageError),
        (ConnectionResetError(errno.ECONNRESET, "reset"), RetriableRemoteStorageError),
        (LibraryError("no endpoint"), RetriableRemoteStorageError),
        (RemoteStorageError("cut"), RemoteStorageError),
    ],
    ids=str,
)
def test_errors_are_of_three_kinds(raised: Exception, expected: type[RemoteStorageError]) -> None:
    with pytest.raises(RemoteStorageError) as found, library_errors("reading"):
        raise raised
    assert type(found.value) is expected


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"mtime": 12.5, "created": 1.0}, 12_500),
        ({"LastModified": datetime(1970, 1, 1, 0, 1, tzinfo=UTC)}, 60_000),
        ({"updated": "1970-01-01T00:01:00.250+00:00"}, 60_250),
        ({"updated": "no time"}, 77),
        ({}, 77),
    ],
)
def test_file_systems_tell_times_in_different_ways(info: dict[str, Any], expected: int) -> None:
    assert modified_ms(info, 77) == expected


def test_object_stores_are_known_by_their_protocols() -> None:
    assert is_object_store(cast("FileSystem", RecordingStore()))
    assert not is_object_store(cast("FileSystem", Recording()))
    assert is_object_store(cast("FileSystem", MemoryFileSystem()))
