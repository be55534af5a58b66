"""The checks of `milena up` on the place of a remote tier before nodes start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from milena.command_line.errors import UserError
from milena.tiered.store import tier_names
from milena.up.command import COMMAND
from milena.up.layout import ClusterDir
from milena.up.plan import NodePlan, nodes_of
from milena.up.settings import Settings
from milena.up.tier_location import COPYING, FOLDER, check, moved, place_of


def broker_of(folder: Path, *arguments: str) -> tuple[Settings, NodePlan]:
    settings = Settings()
    settings.take(COMMAND.parse(arguments))
    settings.controller_port = 20_000
    return settings, nodes_of(ClusterDir(str(folder)), settings)[1]


def tier(folder: Path, *partitions: str) -> str:
    for name in partitions:
        (folder / FOLDER / name).mkdir(parents=True)
    return str(folder)


def test_the_folder_names_are_those_of_the_tier() -> None:
    assert (FOLDER, COPYING) == (tier_names.ROOT, tier_names.COPYING)


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ((), "{folder}/remote"),
        (("--tier", "/t"), "/t"),
        (("--tier", "s3://b/p"), "s3://b/p"),
        (("--tier", "/t", "--override", "rsm.config.dir=/u"), "/u"),
        (("--tier", "/t", "--override", "remote.log.storage.system.enable=false"), None),
        (("--tier", "/t", "--override", "rsm.config.dir=${env:TIER}"), None),
        (("--no-tier",), None),
    ],
)
def test_the_checked_place_is_the_one_in_the_configuration_of_brokers(
    tmp_path: Path, arguments: tuple[str, ...], place: str | None
) -> None:
    found = place_of(*broker_of(tmp_path, *arguments))
    assert found == (place and place.format(folder=tmp_path))


def test_the_check_of_a_usable_folder_does_not_create_it(tmp_path: Path) -> None:
    assert check(str(tmp_path / "a" / "b"), 3) == check(str(tmp_path), 3) == check("memory://x", 1) == []
    assert not list(tmp_path.iterdir())


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UserError, match=f"the remote tier {file} is not a folder"):
        check(str(file), 3)
    with pytest.raises(UserError, match=f"the remote tier's folder {file}/x cannot be created: Not a directory"):
        check(f"{file}/x", 3)
    with pytest.raises(UserError, match="the remote tier's folder /proc/x/y cannot be created: "):
        check("/proc/x/y", 3)


@pytest.mark.parametrize("closed", [".", FOLDER, COPYING])
def test_a_warning_is_returned_for_a_read_only_folder(
    tmp_path: Path, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creating a folder fails as on a read-only mount, also for root."""
    for name in (FOLDER, COPYING):
        if closed != ".":
            (tmp_path / name).mkdir()
    make = os.mkdir

    def mkdir(path: str, mode: int = 0o777) -> None:
        if os.path.dirname(path) == os.path.normpath(tmp_path / closed):
            raise OSError(30, "Read-only file system")
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", mkdir)
    assert check(str(tmp_path), 3) == [
        f"the remote tier's folder {tmp_path} is read-only, nothing can be copied to it: Read-only file system"
    ]


def test_a_warning_is_returned_while_the_former_tier_has_partitions_that_the_new_one_lacks(tmp_path: Path) -> None:
    _, broker = broker_of(tmp_path)
    old, new = tier(tmp_path / "old", "a-0", "a-1", "b-0", "c-0", "d-0"), tier(tmp_path / "new")
    assert moved(old, old, broker) == moved(new, old, broker) == []
    assert moved(old, new, broker) == [
        f"the remote tier was {old} before: what was copied there cannot be read in {new}, as a-0, a-1, b-0 and 2 "
        f"more; start with --tier {old}, or copy it over"
    ]
    tier(tmp_path / "new", "a-0", "a-1", "b-0", "c-0")
    (said,) = moved(old, new, broker)
    assert f"in {new}, as d-0; start" in said
    tier(tmp_path / "new", "d-0")
    assert moved(old, new, broker) == []


def test_a_warning_is_returned_if_the_former_tier_cannot_be_read(tmp_path: Path) -> None:
    _, broker = broker_of(tmp_path)
    away, new = str(tmp_path / "away"), tier(tmp_path / "new")
    (said,) = moved(away, new, broker)
    assert said.endswith(f"and {away} cannot be looked at now: No such file or directory")
    assert moved(broker.remote, new, broker) == [], "no node was ever there to make it"
    tier(tmp_path / "new", "a-0")
    assert moved(away, new, broker) == [], "it has been moved"


def test_the_content_of_an_object_store_is_not_compared(tmp_path: Path) -> None:
    _, broker = broker_of(tmp_path)
    assert moved("s3://a", "s3://b", broker) == [
        "the remote tier was s3://a before: what was copied there cannot be read in s3://b; start with --tier s3://a, "
        "or copy it over"
    ]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("memory://tier", "is in the memory of each broker"),
        ("nonsense://bucket/x", "has a scheme that fsspec does not know"),
        ("dask://worker", "cannot be used: "),
        ("simplecache::nonsense://x", "has a scheme that fsspec does not know"),
    ],
)
def test_an_object_store_that_brokers_cannot_use_is_refused(url: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        check(url, 3)


@pytest.mark.parametrize("url", ["s3://", "gs:///", "az://"])
def test_an_object_store_without_a_bucket_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsspec.get_filesystem_class", lambda protocol: object)
    with pytest.raises(UserError, match="names no bucket"):
        check(url, 3)
    assert check(f"{url.rstrip('/')}//bucket/prefix", 3) == []
