"""Whose a tier is: what a broker does with what it finds in a place."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.lab.world.world import World, simulate
from milena.tiered.store.fsspec_tier import FsspecSettings, FsspecTier
from milena.tiered.store.remote_storage import RemoteStorageError, RetriableRemoteStorageError
from milena.tiered.store.tier_identity import IDENTITY, Claim, encode, parse

OWN = encode("mine")


def claim(*, may_begin: bool, cluster: str | None = "mine") -> Claim:
    return Claim(lambda: cluster, lambda: may_begin)


def test_the_file_names_the_cluster() -> None:
    assert parse(OWN) == "mine"
    assert [parse(text) for text in (b"", b"cluster.id=", b"\xff\xfe")] == [None, None, None]


def test_a_tier_begins_only_where_nothing_was_copied_before() -> None:
    assert claim(may_begin=True).check("/tier", None, is_there=False) == OWN
    with pytest.raises(RetriableRemoteStorageError, match="/tier has no tier, but the metadata lists copied segments"):
        claim(may_begin=False).check("/tier", None, is_there=False)
    with pytest.raises(RetriableRemoteStorageError):
        claim(may_begin=False).check("/tier", OWN, is_there=False)


def test_a_tier_that_is_there_without_a_name_is_taken_over() -> None:
    assert claim(may_begin=False).check("/tier", None, is_there=True) == OWN
    assert claim(may_begin=False).check("/tier", OWN, is_there=True) is None


@pytest.mark.parametrize("found", [encode("another"), b"", b"cluster.id="])
def test_another_clusters_tier_is_refused(found: bytes) -> None:
    with pytest.raises(RemoteStorageError, match="is the tier of cluster"):
        claim(may_begin=True).check("/tier", found, is_there=True)


def test_without_a_cluster_id_nothing_is_decided() -> None:
    with pytest.raises(RetriableRemoteStorageError):
        claim(may_begin=True, cluster=None).check("/tier", OWN, is_there=True)


@pytest.mark.parametrize("scheme", ["local", "memory"])
def test_a_prefix_in_a_store_is_claimed_refused_and_restored(scheme: str, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    url = f"{scheme}://{tmp_path}/prefix"
    settings = FsspecSettings(url=url, options={}, chunk=1 << 20, cache=1 << 22, ahead=0)

    async def scenario(world: World) -> None:
        runtime = world.machine("broker").start()
        waiting = FsspecTier(runtime, settings, "1", claim=claim(may_begin=False))
        await waiting.start()  # nothing is made
        with pytest.raises(RetriableRemoteStorageError, match="has no tier"):
            await waiting.check()
        first = FsspecTier(runtime, settings, "1", claim=claim(may_begin=True))
        await first.check()
        system, top = fsspec.core.url_to_fs(url)
        assert system.cat_file(f"{top}/{IDENTITY}") == OWN
        await waiting.check()
        other = FsspecTier(runtime, settings, "2", claim=claim(may_begin=True, cluster="restored"))
        with pytest.raises(RemoteStorageError, match="is the tier of cluster mine"):
            await other.check()
        await FsspecTier(runtime, settings, "milena-tier").own("restored")
        await other.check()
        with pytest.raises(RemoteStorageError, match="is the tier of cluster restored"):
            await first.start() if scheme == "local" else await first.check()

    simulate(scenario, seed=1)
