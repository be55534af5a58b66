"""An fsspec store that records what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, cast

from fsspec.implementations.memory import MemoryFileSystem

from milena.tiered.store.fsspec_tier import FsspecSettings
from milena.tiered.store.remote_storage import (
    SegmentFiles,
)
from tests.contract.tiers import CONTENTS
from tests.contract.worlds import Surroundings, on_asyncio


class Recording(MemoryFileSystem):  # type: ignore[misc]
    """A store in memory that says what it was asked for."""

    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    cachable = False
    protocol = "recording"

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        self.calls.append(("put", path))
        super().pipe_file(path, value, mode, **options)

    def put_file(self, lpath: str, rpath: str, **options: Any) -> None:
        self.calls.append(("put", rpath))
        super().put_file(lpath, rpath, **options)

    def cat_file(self, path: str, version_id: str = "", start: int | None = None, end: int | None = None) -> bytes:
        self.calls.append(("get", path))
        assert not version_id, "as s3fs has it: the range comes later"
        return cast("bytes", super().cat_file(path, start=start, end=end))

    def rm_file(self, path: str) -> None:
        self.calls.append(("delete", path))
        super().rm_file(path)

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        self.calls.append(("move", path2))
        super().mv(path1, path2, **options)


class RecordingStore(Recording):
    """The same, taken for an object store."""

    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    protocol = "s3"


def sources(folder: Path) -> SegmentFiles:
    for suffix, data in CONTENTS.items():
        (folder / f"s{suffix}").write_bytes(data)
    path = str(folder / "s")
    return SegmentFiles(
        f"{path}.log",
        f"{path}.index",
        f"{path}.timeindex",
        f"{path}.txnindex",
        f"{path}.snapshot",
        CONTENTS[".leader_epoch_checkpoint"],
    )


def really(body: Callable[[Surroundings], Coroutine[Any, Any, None]], folder: Path) -> None:
    on_asyncio(body, folder)


def settings(url: str, **options: Any) -> FsspecSettings:
    return FsspecSettings(url, options, chunk=1000, cache=5000, ahead=2)
