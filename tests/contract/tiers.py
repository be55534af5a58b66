"""Runs a scenario on every adapter of the remote storage port."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast
from uuid import UUID

import pytest
from fsspec.core import url_to_fs

from milena.form import running
from milena.lab.world.disk import SimulatedDisk
from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.protocol.uuids import to_text
from milena.runtime.clock import Clock, Timer
from milena.runtime.context import Runtime
from milena.runtime.disk import Disk
from milena.runtime.files import RealDisk
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from milena.tiered.store.fsspec_system import FileSystem
from milena.tiered.store.fsspec_tier import FsspecSettings, FsspecTier
from milena.tiered.store.local_tier import LocalTier
from milena.tiered.store.remote_storage import RemoteStorage, SegmentFiles
from tests.contract.worlds import Scenario, Surroundings, on_asyncio, simulated

PARTITION = TopicIdPartition(UUID(int=1 << 64 | 2), "top-ic", 3)
HOME = "kafka-tiered-storage/top-ic-3-AAAAAAAAAAEAAAAAAAAAAg"
LOG = bytes(range(256)) * 40
CONTENTS: Mapping[str, bytes] = {
    ".log": LOG,
    ".index": b"8 bytes.",
    ".timeindex": b"twelve bytes",
    ".txnindex": b"34 bytes about aborted transaction",
    ".snapshot": b"producers",
    ".leader_epoch_checkpoint": b"0\n1\n0 0\n",
}


def segment(number: int, start: int = 1000, *, size: int = len(LOG)) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, UUID(int=number)),
        Offset(start),
        Offset(start + 99),
        NodeId(1),
        1000,
        2000,
        (EpochEntry(LeaderEpoch(0), Offset(start)),),
        size,
        None,
        RemoteLogSegmentState.COPY_SEGMENT_STARTED,
        False,
    )


def object_path(metadata: RemoteLogSegmentMetadata, suffix: str) -> str:
    return f"{HOME}/{metadata.start_offset:020d}-{to_text(metadata.id)}{suffix}"


class BackDoor(Protocol):
    """Direct access to the files of the tier, past the adapter. Paths are relative to the folder of the tier."""

    def tree(self) -> dict[str, bytes]: ...
    def write(self, path: str, data: bytes) -> None: ...
    def remove(self, path: str) -> None: ...
    def has_folder(self, path: str) -> bool: ...
    def vanishing(self, path: str, times: int) -> None:
        """Let another broker remove this empty folder before a file is moved into it, ``times`` times."""
        ...

    def fail(self, number: int, after: int) -> None:
        """Let every writing call after the first ``after`` ones raise OSError with this errno; 0 ends that."""
        ...


@dataclass(frozen=True, slots=True)
class Tier:
    """The argument of a scenario: an adapter of remote storage, and access to its files."""

    it: Surroundings
    storage: RemoteStorage
    door: BackDoor
    again: Callable[[Runtime], RemoteStorage]
    """Another adapter for the same tier, as a new process of the same broker would create it."""

    def files(self, *, without: str = "", log: bytes = LOG, txn: bool = True) -> SegmentFiles:
        """The files of a segment on the broker's local disk; ``without``: the suffix of one that is missing."""
        disk, folder = self.it.runtime.disk, f"{self.it.folder}/segment"
        disk.make_folders(folder)
        for suffix, data in CONTENTS.items():
            path = f"{folder}/s{suffix}"
            disk.remove(path)
            if suffix != without:
                disk.write_atomic(path, log if suffix == ".log" else data)
        return SegmentFiles(
            log=f"{folder}/s.log",
            offset_index=f"{folder}/s.index",
            time_index=f"{folder}/s.timeindex",
            txn_index=f"{folder}/s.txnindex" if txn else None,
            producer_snapshot=f"{folder}/s.snapshot",
            leader_epochs=CONTENTS[".leader_epoch_checkpoint"],
        )

    def objects(self) -> dict[str, bytes]:
        """Path and content of every file of the tier."""
        return self.door.tree()


class DiskDoor:
    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder

    def tree(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}

        def walk(folder: str) -> None:
            for name in self._disk.list(folder):
                path = f"{folder}/{name}"
                try:
                    self._disk.list(path)
                except (FileNotFoundError, NotADirectoryError):
                    found[path.removeprefix(f"{self._folder}/")] = self._disk.read(path)
                else:
                    walk(path)

        walk(self._folder)
        return found

    def write(self, path: str, data: bytes) -> None:
        full = f"{self._folder}/{path}"
        self._disk.make_folders(full.rpartition("/")[0])
        self._disk.write_atomic(full, data)

    def remove(self, path: str) -> None:
        self._disk.remove_tree(f"{self._folder}/{path}") if "." not in path else self._disk.remove(
            f"{self._folder}/{path}"
        )

    def has_folder(self, path: str) -> bool:
        return self._disk.exists(f"{self._folder}/{path}")

    def vanishing(self, path: str, times: int) -> None:
        if running() == "compiled" and isinstance(self._disk, RealDisk):
            pytest.skip("the disk is compiled, and takes no other method")
        disk, home, rename = self._disk, f"{self._folder}/{path}", self._disk.rename
        left = times

        def rename_late(old: str, new: str, *, sync: bool = True) -> None:
            nonlocal left
            if left and new.startswith(f"{home}/"):
                left -= 1
                disk.remove_folder(home)
            rename(old, new, sync=sync)

        cast("Any", disk).rename = rename_late

    def fail(self, number: int, after: int) -> None:
        assert isinstance(self._disk, SimulatedDisk)
        self._disk.storage.heal()
        if number:
            for operation in ("append", "write", "truncate", "rename", "remove")[after:]:
                self._disk.storage.fail(f"{self._folder}/", number, operation=operation)


@dataclass
class Faulty:
    """An fsspec file system whose writing calls can be made to fail."""

    system: Any
    number: int = 0
    calls_left: int = 0
    writing: frozenset[str] = field(default=frozenset({"pipe_file", "put_file", "mv", "rm_file", "rm", "makedirs"}))

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.system, name)
        return self._guarded(call) if name in self.writing and self.number else call

    def _guarded(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any, **options: Any) -> Any:
            if self.number:
                self.calls_left -= 1
                if self.calls_left < 0:
                    raise OSError(self.number, "as the test wants it")
            return call(*arguments, **options)

        return guarded


class FsspecDoor:
    def __init__(self, system: Faulty, folder: str) -> None:
        self._faulty = system
        self._folder = folder

    def tree(self) -> dict[str, bytes]:
        system = self._faulty.system
        return {path.removeprefix(f"{self._folder}/"): system.cat_file(path) for path in system.find(self._folder)}

    def write(self, path: str, data: bytes) -> None:
        system = self._faulty.system
        system.makedirs(f"{self._folder}/{path}".rpartition("/")[0], exist_ok=True)
        system.pipe_file(f"{self._folder}/{path}", data)

    def remove(self, path: str) -> None:
        self._faulty.system.rm(f"{self._folder}/{path}", recursive=True)

    def has_folder(self, path: str) -> bool:
        return bool(self._faulty.system.exists(f"{self._folder}/{path}"))

    def vanishing(self, path: str, times: int) -> None:
        system, home, left = self._faulty.system, f"{self._folder}/{path}", times

        def move_late(source: str, target: str) -> object:
            nonlocal left
            if left and target.startswith(f"{home}/"):
                left -= 1
                system.rmdir(home)
            return system.mv(source, target)

        cast("Any", self._faulty).mv = move_late

    def fail(self, number: int, after: int) -> None:
        self._faulty.number = number
        self._faulty.calls_left = after


class Later:
    """A clock that is ahead of the runtime's clock."""

    def __init__(self, clock: Clock, ahead_ms: int) -> None:
        self._clock = clock
        self._ahead_ms = ahead_ms

    def time_ms(self) -> int:
        return self._clock.time_ms() + self._ahead_ms

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        return self._clock.call_later(delay, callback)

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


def later(runtime: Runtime, ahead_ms: int) -> Runtime:
    return replace(runtime, clock=Later(runtime.clock, ahead_ms))


TierScenario = Callable[[Tier], Coroutine[Any, Any, None]]
Adapter = Callable[[TierScenario, Path], None]


def _local(tier: TierScenario) -> Scenario:
    async def scenario(it: Surroundings) -> None:
        folder = f"{it.folder}/tier"

        def make(runtime: Runtime) -> RemoteStorage:
            return LocalTier(runtime, folder, "1")

        await _play(tier, Tier(it, make(it.runtime), DiskDoor(it.runtime.tier_disk, folder), make))

    return scenario


def _fsspec(tier: TierScenario, url: str) -> Scenario:
    async def scenario(it: Surroundings) -> None:
        system, top = url_to_fs(url)
        faulty = Faulty(system)

        def make(runtime: Runtime) -> RemoteStorage:
            settings = FsspecSettings(top, {}, chunk=1000, cache=5000, ahead=2)
            return FsspecTier(runtime, settings, "1", system=cast("FileSystem", faulty))

        await _play(tier, Tier(it, make(it.runtime), FsspecDoor(faulty, top), make))
        with suppress(FileNotFoundError):
            system.rm(top, recursive=True)

    return scenario


async def _play(scenario: TierScenario, tier: Tier) -> None:
    await tier.storage.start()
    try:
        await scenario(tier)
    finally:
        await tier.storage.close()


def folder(scenario: TierScenario, path: Path) -> None:
    on_asyncio(_local(scenario), path)


def simulated_folder(scenario: TierScenario, path: Path) -> None:
    simulated(_local(scenario), path)


def fsspec_memory(scenario: TierScenario, path: Path) -> None:
    on_asyncio(_fsspec(scenario, f"memory://{path}"), path)


def fsspec_files(scenario: TierScenario, path: Path) -> None:
    on_asyncio(_fsspec(scenario, f"file://{path}/tier"), path)


def on(*adapters: Adapter) -> Callable[[TierScenario], Callable[[Adapter, Path], None]]:
    """A decorator that makes a scenario one test for each adapter."""

    def decorate(scenario: TierScenario) -> Callable[[Adapter, Path], None]:
        @pytest.mark.parametrize("adapter", adapters, ids=lambda adapter: adapter.__name__)
        def test(adapter: Adapter, tmp_path: Path) -> None:
            adapter(scenario, tmp_path)

        test.__name__ = test.__qualname__ = scenario.__name__
        test.__module__ = scenario.__module__
        return test

    return decorate


on_all_tiers = on(folder, simulated_folder, fsspec_memory, fsspec_files)
on_file_systems = on(folder, simulated_folder, fsspec_files)
on_tiers_that_can_fail = on(simulated_folder, fsspec_memory, fsspec_files)
