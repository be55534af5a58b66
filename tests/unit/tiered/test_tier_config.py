"""Which remote storage a broker's keys name."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from milena.config.values import ConfigError
from milena.lab.world.world import World, simulate
from milena.tiered.store.fsspec_tier import FsspecTier
from milena.tiered.store.local_tier import LocalTier
from milena.tiered.store.remote_storage import RemoteStorage
from milena.tiered.store.tier_config import FSSPEC, LOCAL, remote_storage


def made(name: str | None, settings: Mapping[str, str]) -> RemoteStorage:
    async def run(world: World) -> RemoteStorage:
        return remote_storage(world.machine("broker").start(), name, settings, "1")

    return simulate(run, seed=1)


def test_kafkas_name_stands_for_a_folder_and_ours_for_all_that_fsspec_reaches() -> None:
    assert isinstance(made(LOCAL, {"dir": "/tier", "delete.on.close": "false"}), LocalTier)
    assert isinstance(made(FSSPEC, {"url": "memory://tier"}), FsspecTier)
    options = {"url": "s3://bucket/tier", "options": '{"endpoint_url": "http://store:9000"}', "chunk.size": "1048576"}
    assert isinstance(made(FSSPEC, options), FsspecTier), "a store is asked when it is needed"


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        (None, {}, "class.name is missing"),
        ("com.example.Storage", {}, "com.example.Storage is not one of"),
        (LOCAL, {}, "rsm.config.dir"),
        (LOCAL, {"dir": " "}, "rsm.config.dir"),
        (FSSPEC, {"dir": "/tier"}, "rsm.config.url"),
        (FSSPEC, {"url": "memory://t", "options": "{"}, "not valid JSON"),
        (FSSPEC, {"url": "memory://t", "options": "[]"}, "JSON object"),
        (FSSPEC, {"url": "memory://t", "chunk.size": "4M"}, "chunk.size='4M'"),
        (FSSPEC, {"url": "memory://t", "chunk.size": "0"}, "chunk.size=0"),
        (FSSPEC, {"url": "memory://t", "chunk.cache.size": "100"}, "chunk.cache.size=100"),
        (FSSPEC, {"url": "memory://t", "read.ahead.chunks": "-1"}, "read.ahead.chunks=-1"),
    ],
)
def test_unusable_keys_are_named(name: str | None, settings: Mapping[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace(".", r"\.").replace("[", r"\[")):
        made(name, settings)
