"""What every adapter does with work orders and their results: whole objects, in folders that need not exist."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from milena.tiered.orders.taking_up import waiting_orders
from milena.tiered.store.fsspec_staging import FsspecStaging
from milena.tiered.store.remote_storage import RemoteResourceNotFound, RemoteStorageError
from milena.tiered.store.staging import LocalStaging, Staging
from tests.contract.worlds import Surroundings, on_asyncio, simulated

Body: TypeAlias = Callable[[Staging, Surroundings], Coroutine[Any, Any, None]]


def local(body: Body) -> Callable[[Surroundings], Coroutine[Any, Any, None]]:
    async def scenario(it: Surroundings) -> None:
        folder = f"{it.folder}/tier"
        it.runtime.tier_disk.make_folders(f"{folder}/kafka-tiered-storage")
        await body(LocalStaging(it.runtime.tier_disk, it.runtime.disk, folder, "1"), it)

    return scenario


def fsspec(body: Body, url: str) -> Callable[[Surroundings], Coroutine[Any, Any, None]]:
    async def scenario(it: Surroundings) -> None:
        await body(FsspecStaging(it.runtime, url, {}, "1"), it)

    return scenario


WORLDS: dict[str, Callable[[Body, Path], None]] = {
    "folder": lambda body, path: on_asyncio(local(body), path),
    "simulated": lambda body, path: simulated(local(body), path),
    "local": lambda body, path: on_asyncio(fsspec(body, f"local://{path}/store"), path),
    "memory": lambda body, path: on_asyncio(fsspec(body, f"memory://{path}/store"), path),
}


@pytest.mark.parametrize("world", WORLDS)
def test_objects_are_written_listed_read_and_removed(world: str, tmp_path: Path) -> None:
    async def body(staging: Staging, it: Surroundings) -> None:
        assert await staging.names() == [] == await staging.names("t-0/order")
        source = f"{it.folder}/source"
        it.runtime.disk.write_atomic(source, bytes(range(256)) * 50)
        await staging.write("t-0/order/b", source)
        await staging.write("t-0/order/a", b"1")
        await staging.write("t-0/order/a", b"four")
        assert (await staging.names(), await staging.names("t-0")) == (["t-0"], ["order"])
        assert await staging.names("t-0/order") == ["a", "b"]
        assert (await staging.size("t-0/order/a"), await staging.size("t-0/order/b")) == (4, 12800)
        assert await staging.read("t-0/order/a", 1, 2) == b"ou"
        assert await staging.read("t-0/order/b", 255, 3) == bytes([255, 0, 1])
        assert await staging.read("t-0/order/a", 0, 0) == b""
        with pytest.raises(RemoteStorageError):
            await staging.read("t-0/order/a", 2, 3)
        for call in (staging.size("t-0/order/c"), staging.read("t-0/order/c", 0, 1)):
            with pytest.raises(RemoteResourceNotFound):
                await call
        await staging.remove("t-0/order")
        await staging.remove("t-0/order")
        assert await staging.names("t-0/order") == []

    WORLDS[world](body, tmp_path)


@pytest.mark.parametrize("world", WORLDS)
def test_files_that_lie_beside_the_orders_do_not_hide_them(world: str, tmp_path: Path) -> None:
    async def body(staging: Staging, _it: Surroundings) -> None:
        for path in ("note", "t-0/note", "t-0/1-AA/order.json"):
            await staging.write(path, b"{}")
        found = await waiting_orders(staging, 0)
        assert (found.orders, found.unreadable) == ([], ["t-0/1-AA: the order has no version"])

    WORLDS[world](body, tmp_path)


def test_what_is_being_written_is_not_there_yet_and_a_tier_that_is_away_is_not_filled(tmp_path: Path) -> None:
    async def body(staging: Staging, it: Surroundings) -> None:
        await staging.write("t-0/a", b"whole")
        (tmp_path / "seen").mkdir()
        disk, top = it.runtime.tier_disk, f"{it.folder}/tier"
        disk.write_atomic(f"{top}/milena-work/t-0/b.2.part", b"half")
        assert await staging.names("t-0") == ["a"]
        disk.remove_tree(f"{top}/kafka-tiered-storage")
        with pytest.raises(RemoteStorageError, match="cannot write"):
            await staging.write("t-0/c", b"1")

    WORLDS["simulated"](body, tmp_path)
