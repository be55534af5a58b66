"""Copies of a cluster's files: clones, hard links or plain copies, whatever the file systems allow."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from milena.command_line.errors import UserError
from milena.steering.snapshots import snapshot as write_snapshot
from milena.up import settings, snapshots
from milena.up.layout import ClusterDir
from milena.up.snapshots import Copier, closed_segments

SEGMENTS = ("00000000000000000000", "00000000000000000007", "00000000000000000009")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "t-0"
    folder.mkdir()
    for base in SEGMENTS:
        for suffix in (".log", ".index"):
            (folder / f"{base}{suffix}").write_bytes(base.encode())
    for name in ("leader-epoch-checkpoint", f"{SEGMENTS[2]}.snapshot", "committed-offset"):
        (folder / name).write_bytes(name.encode())
    for name in ("empty.timeindex", f"{SEGMENTS[0]}.log.deleted", "leader-epoch-checkpoint.tmp"):
        (folder / name).write_bytes(b"")
    (folder / "t-1.0123-delete").mkdir()
    os.utime(folder / f"{SEGMENTS[2]}.log", (1000, 2000))
    return folder


def failing(code: int) -> Callable[..., object]:
    def call(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return call


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def shared(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.stat().st_nlink > 1}


@pytest.mark.parametrize("of_snapshot", [False, True])
def test_without_reflinks_only_what_is_never_changed_in_place_is_linked(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, of_snapshot: bool
) -> None:
    monkeypatch.setattr(fcntl, "ioctl", failing(errno.EOPNOTSUPP))
    (tmp_path / "first").write_bytes(b"x")
    copier = Copier(of_snapshot=of_snapshot)
    copier.file(str(tmp_path / "first"), str(tmp_path / "other"), immutable=False)  # finds that there are no reflinks
    copier.tree(str(log), str(tmp_path / "copy"))
    expected = {f"{base}{suffix}" for base in SEGMENTS[:2] for suffix in (".log", ".index")}
    expected |= {"leader-epoch-checkpoint", f"{SEGMENTS[2]}.snapshot"} | ({"empty.timeindex"} if of_snapshot else set())
    assert shared(tmp_path / "copy") == expected
    left_out = {f"{SEGMENTS[0]}.log.deleted", "leader-epoch-checkpoint.tmp"}
    assert contents(tmp_path / "copy") == {k: v for k, v in contents(log).items() if k not in left_out}
    assert not (tmp_path / "copy" / "t-1.0123-delete").exists()
    assert (tmp_path / "copy" / f"{SEGMENTS[2]}.log").stat().st_mtime == 2000


def test_with_reflinks_nothing_with_data_is_linked(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def clone(target: int, request: int, source: int) -> int:
        assert request == snapshots.FICLONE
        return os.write(target, os.read(source, 1000))

    monkeypatch.setattr(fcntl, "ioctl", clone)
    Copier(of_snapshot=False).tree(str(log), str(tmp_path / "copy"), immutable=True)
    assert shared(tmp_path / "copy") == set()
    assert (tmp_path / "copy" / "committed-offset").read_bytes() == b"committed-offset"


def test_on_another_file_system_everything_is_copied(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "ioctl", failing(errno.EXDEV))
    monkeypatch.setattr(os, "link", failing(errno.EXDEV))
    Copier(of_snapshot=True).tree(str(log), str(tmp_path / "copy"), immutable=True)
    assert shared(tmp_path / "copy") == set()
    assert (tmp_path / "copy" / f"{SEGMENTS[0]}.log").read_bytes() == SEGMENTS[0].encode()


def test_an_error_of_the_disk_is_not_taken_for_a_missing_ability(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "ioctl", failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        Copier(of_snapshot=False).tree(str(log), str(tmp_path / "copy"))


def test_the_last_segment_is_not_closed() -> None:
    names = ["00000000000000000000.log", "00000000000000000007.log", "00000000000000000007.index", "t"]
    assert closed_segments(names) & set(names) == {"00000000000000000000.log"}
    assert closed_segments([]) == set()


def test_a_cluster_with_a_tier_elsewhere_gets_its_own_folder_in_a_copy(tmp_path: Path) -> None:
    source, target = ClusterDir(str(tmp_path / "one")), ClusterDir(str(tmp_path / "two"))
    source.create()
    options = settings.Settings()
    options.brokers, options.controller_port, options.cluster_id = 1, 12345, "Some1Cluster2Id3Here4Q"
    options.overrides = [("rsm.config.dir", str(tmp_path / "tier")), ("num.partitions", "7")]
    settings.save(source, options)
    segment = tmp_path / "tier" / "kafka-tiered-storage" / "t-0-id" / "segment.log"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"data")
    (tmp_path / "one" / "broker-1" / "data").mkdir(parents=True)

    with snapshots.begun(str(tmp_path / "snapshot")):
        snapshots.save(source, str(tmp_path / "snapshot"), {"broker-1": "incarnation"})
    snapshots.unpack(str(tmp_path / "snapshot"), target)

    made = settings.load(target)
    assert (made.brokers, made.cluster_id, made.controller_port) == (1, options.cluster_id, None)
    assert (made.tier, made.overrides) == ("", [("num.partitions", "7")])
    assert Path(target.remote, "kafka-tiered-storage", "t-0-id", "segment.log").read_bytes() == b"data"
    assert Path(target.resume("broker-1")).read_text() == "incarnation\n"
    with pytest.raises(UserError, match="holds a cluster already"):
        snapshots.unpack(str(tmp_path / "snapshot"), target)


def test_what_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no snapshot"):
        snapshots.read(str(tmp_path))
    (tmp_path / "snapshot.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        snapshots.read(str(tmp_path))
    (tmp_path / "snapshot.json").write_text('{"format": 2}')
    with pytest.raises(UserError, match="a snapshot of format 2, and this version reads 1"):
        snapshots.read(str(tmp_path))
    with pytest.raises(UserError, match="exists and is not empty"), snapshots.begun(str(tmp_path)):
        pass


@pytest.mark.parametrize("ending", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_an_unfinished_snapshot_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: BaseException
) -> None:
    def save(_: ClusterDir, path: str, __: object) -> None:
        Path(path, "broker-1", "data").mkdir(parents=True)
        Path(path, "settings").write_text("brokers=1")
        raise ending

    monkeypatch.setattr(snapshots, "save", save)
    expected = UserError if isinstance(ending, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        write_snapshot(ClusterDir(str(tmp_path / "cluster")), str(tmp_path / "snapshot"))
    assert list((tmp_path / "snapshot").iterdir()) == [], "the same folder can be named again"


def test_what_a_killed_snapshot_has_left_is_no_snapshot_and_is_replaced(tmp_path: Path) -> None:
    cluster, folder = stopped_cluster(tmp_path), tmp_path / "snapshot"
    writing = os.fork()
    if not writing:
        with snapshots.begun(str(folder)):
            (folder / "broker-1").mkdir()
            (folder / "broker-1" / "half").write_bytes(b"x")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(writing, 0)
    assert (folder / "broker-1" / "half").exists()
    with pytest.raises(UserError, match="holds no snapshot"):
        snapshots.read(str(folder))

    write_snapshot(cluster, str(folder))

    assert {path.name for path in folder.rglob("*")} == {"broker-1", "data", "remote", "settings", "snapshot.json"}
    assert [node["name"] for node in snapshots.read(str(folder))["nodes"]] == ["controller-100", "broker-1"]
    with pytest.raises(UserError, match="exists and is not empty"):
        write_snapshot(cluster, str(folder))


def test_a_snapshot_that_another_process_is_writing_stays(tmp_path: Path) -> None:
    cluster, folder = stopped_cluster(tmp_path), tmp_path / "snapshot"
    with snapshots.begun(str(folder)):
        (folder / "settings").write_text("brokers=1")
        with pytest.raises(UserError, match="another process writes a snapshot there"):
            write_snapshot(cluster, str(folder))
        assert (folder / "settings").exists()


def stopped_cluster(tmp_path: Path) -> ClusterDir:
    cluster = ClusterDir(str(tmp_path / "cluster"))
    cluster.create()
    options = settings.Settings()
    options.brokers, options.controller_port, options.cluster_id = 1, 12345, "Some1Cluster2Id3Here4Q"
    settings.save(cluster, options)
    os.makedirs(cluster.data("broker-1"))
    return cluster


def test_a_controller_learns_which_brokers_do_not_continue(tmp_path: Path) -> None:
    """Their next incarnation need not wait until a session of the former one ends."""
    cluster = ClusterDir(str(tmp_path))
    for name in ("controller-100", "broker-1", "broker-2"):
        os.makedirs(cluster.folder(name))
    Path(cluster.resume("broker-2")).write_text("of a restore that was interrupted")
    for name, incarnation in (("broker-1", "incarnation"), ("broker-2", None)):
        snapshots.resume(cluster, {"name": name, "log_dirs": 1, "incarnation": incarnation})
    snapshots.move(cluster, "controller-100", {1: "localhost:1", 2: "[::1]:2"})
    assert json.loads(Path(cluster.resume("controller-100")).read_text()) == {
        "addresses": {"1": ["localhost", 1], "2": ["::1", 2]},
        "ended": [2],
    }
    assert not Path(cluster.resume("broker-2")).exists()
