"""Work orders of very many groups, and those that are removed while somebody writes to them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from milena.runtime.context import Runtime
from milena.tiered.store.fsspec_staging import FsspecStaging
from milena.tiered.store.staging import LocalStaging
from tests.contract.worlds import Surroundings
from tests.unit.tiered.recording_store import RecordingStore, really


class Listed(RecordingStore):
    """A store that keeps what it has listed for later, as s3fs does, and counts listings."""

    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def __init__(self) -> None:
        super().__init__()
        self.listings = 0
        self._kept: dict[str, list[dict[str, Any]]] = {}

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        self.listings += 1
        self._kept[path] = super().ls(path, detail, **options)
        return self._kept[path]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        kept = self._kept.get(path.rpartition("/")[0])
        if kept is None:
            return cast("dict[str, Any]", super().info(path, **options))
        found = [one for one in kept if one["name"] == path]
        return found[0] if found else {"name": path, "size": 0, "type": "directory"}

    def invalidate_cache(self, path: str | None = None) -> None:
        self._kept.clear()


def staging(runtime: Runtime, system: object) -> FsspecStaging:
    def connect(url: str, _options: Mapping[str, object]) -> tuple[object, str]:
        return system, url

    return FsspecStaging(replace(runtime, connect_store=connect), "/listed", {}, "1")


def test_the_size_of_an_object_takes_no_listing_of_its_folder(tmp_path: Path) -> None:
    """A folder of 10,000 groups has 30,000 objects, in 30 answers of a store like S3; each is asked for its size."""

    async def body(it: Surroundings) -> None:
        system = Listed()
        found = staging(it.runtime, system)
        await found.write("t-0/order/a", b"1")
        assert await found.names("t-0/order") == ["a"] and system.listings == 1
        await found.write("t-0/order/b", b"four")
        assert [await found.size(f"t-0/order/{name}") for name in "ab"] == [1, 4]
        assert system.listings == 1

    really(body, tmp_path)


def test_an_order_is_removed_while_a_worker_writes_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has another name when its turn comes, and what comes when all seems to be gone, is removed too."""
    unlink, rmdir, late = os.unlink, os.rmdir, list[str]()

    def renamed_before(path: str, *, dir_fd: int | None = None) -> None:
        if path.endswith(".part"):
            os.rename(path, path.partition(".")[0], src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        unlink(path, dir_fd=dir_fd)

    def written_before(path: str, *, dir_fd: int | None = None) -> None:
        if path.endswith("order") and not late:
            late.append(path)
            (tmp_path / "tier" / "milena-work" / "t-0" / "order" / "late").write_bytes(b"1")
        rmdir(path, dir_fd=dir_fd)

    async def body(it: Surroundings) -> None:
        folder = tmp_path / "tier"
        (folder / "kafka-tiered-storage").mkdir(parents=True)
        found = LocalStaging(it.runtime.tier_disk, it.runtime.disk, str(folder), "1")
        for name in ("a", "order.json", "z.2.part"):
            await found.write(f"t-0/order/{name}", b"1")
        monkeypatch.setattr(os, "unlink", renamed_before)
        monkeypatch.setattr(os, "rmdir", written_before)
        await found.remove("t-0/order")
        assert late and await found.names("t-0") == []

    really(body, tmp_path)
