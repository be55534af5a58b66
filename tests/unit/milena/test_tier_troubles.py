"""Faults of the remote tier in the lab: unavailable, losing objects, wrong answers; for both kinds of stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from milena.runtime.process import real_runtime
from milena.steering.tier_troubles import ODD_ANSWERS, TierTroubles, TroubledSystem
from milena.tiered.store.fsspec_system import FileSystem
from milena.tiered.store.fsspec_tier import FsspecSettings, FsspecTier
from milena.tiered.store.local_tier import LocalTier
from milena.tiered.store.remote_storage import (
    LOG_SUFFIX,
    IndexType,
    RemoteResourceNotFound,
    RemoteStorage,
    RetriableRemoteStorageError,
    SegmentFiles,
)
from milena.tiered.store.tier_names import object_path
from tests.unit.tiered.segments import segment

LOG = b"a record. " * 100
KINDS = ("folder", "mounted store", "object store")


class Troubled:
    """A store of one of the kinds, with its injected faults."""

    def __init__(self, kind: str, folder: Path) -> None:
        runtime = real_runtime()
        self.troubles = TierTroubles(runtime, f"{folder}/lost")
        ports = replace(runtime, tier_disk=self.troubles.disk, connect_store=self.troubles.connect_store)
        url = f"memory://{folder.name}" if kind == "object store" else f"file://{folder}/tier"
        (folder / "tier").mkdir()
        self.store: RemoteStorage
        if kind == "folder":
            self.store = LocalTier(ports, f"{folder}/tier", "1")
        else:
            self.store = FsspecTier(ports, FsspecSettings(url=url, options={}, chunk=1000, cache=1000, ahead=0), "1")
        path = f"{folder}/log"
        (folder / "log").write_bytes(LOG)
        self.files = SegmentFiles(path, path, path, None, path, b"0\n0\n")


@pytest.fixture(params=KINDS)
async def troubled(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Troubled]:
    made = Troubled(request.param, tmp_path)
    await made.store.start()
    yield made
    await made.store.close()
    made.troubles.disk.close()


async def test_every_call_to_an_unavailable_tier_fails_with_a_retriable_error(troubled: Troubled) -> None:
    first, second = segment(1, 0, 9, {0: 0}), segment(2, 10, 19, {0: 0})
    await troubled.store.copy(first, troubled.files)
    troubled.troubles.set(away=True, delay=0, lose=0)
    for call in (
        lambda: troubled.store.copy(second, troubled.files),
        lambda: troubled.store.fetch_index(first, IndexType.OFFSET),
        lambda: troubled.store.segments(),
        lambda: troubled.store.delete(first),
    ):
        with pytest.raises(RetriableRemoteStorageError, match="Input/output error"):
            await call()
    troubled.troubles.set(away=False, delay=0, lose=0)
    assert await (await troubled.store.fetch(first, 0)).read() == LOG
    await troubled.store.copy(second, troubled.files)
    assert len(await troubled.store.segments()) == 2


async def test_a_tier_that_loses_objects_loses_the_log_of_a_copied_segment(troubled: Troubled, tmp_path: Path) -> None:
    kept, lost = segment(1, 0, 9, {0: 0}), segment(2, 10, 19, {0: 0})
    await troubled.store.copy(kept, troubled.files)
    troubled.troubles.set(away=False, delay=0, lose=1)
    await troubled.store.copy(lost, troubled.files)
    troubled.troubles.set(away=False, delay=0, lose=0)
    (path,) = troubled.troubles.lost
    assert path.endswith(object_path(lost, LOG_SUFFIX))
    assert TierTroubles(real_runtime(), str(tmp_path / "lost")).lost == [path]  # as in the next process
    assert await troubled.store.fetch_index(lost, IndexType.OFFSET) == LOG
    with pytest.raises(RemoteResourceNotFound):
        await (await troubled.store.fetch(lost, 0)).read()
    assert await (await troubled.store.fetch(kept, 0)).read() == LOG


@pytest.mark.parametrize("odd", list(ODD_ANSWERS))
async def test_a_store_gives_wrong_answers_until_the_fault_is_removed(odd: str, tmp_path: Path) -> None:
    """After the fault is removed, the store returns right answers."""
    troubles = TierTroubles(real_runtime(), f"{tmp_path}/lost")
    assert troubles.active() == []
    troubles.set(away=False, delay=0.0, lose=0.0, odd=odd)
    assert troubles.active() == [{"command": "break_tier", "away": False, "delay_ms": 0, "lose": 0, "odd": odd}]
    system = TroubledSystem(cast("FileSystem", Answering()), troubles)
    if odd in ("page", "short", "sizes"):
        assert system.cat_file("o") != b"an object"
    else:
        with pytest.raises((ValueError, asyncio.CancelledError)):
            system.cat_file("o")
    assert troubles.odd == 1
    troubles.set(away=False, delay=0.0, lose=0.0)
    assert system.cat_file("o") == b"an object"
    assert troubles.odd == 1
    troubles.disk.close()


class Answering:
    """A file system with one object."""

    protocol = "memory"

    def cat_file(self, path: str, *, start: int | None = None, end: int | None = None) -> bytes:
        return b"an object"
