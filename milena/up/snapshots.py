"""Snapshots: copies of a cluster's data in a folder with the layout of a cluster's directory.

DIR/snapshot.json      what it is: format, version, nodes
DIR/settings           the options of the cluster
DIR/NODE/data          the log directories of each node
DIR/remote             the remote tier, if that is a folder

Where the file system can share blocks (reflink: XFS, Btrfs), every file with data is cloned. Elsewhere files that are
never changed in place are hard links: closed segments, objects in the tier, and what is only replaced as a whole; all
others are copied. In copies of a snapshot, empty files are hard links, too. Nodes give a file with several names an
inode of its own before they change it (``runtime.files.RealFile``). Other programs do not.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil

from milena import VERSION
from milena.command_line.errors import UserError, reason_of
from milena.up import locks, private_files, settings, tier_location
from milena.up.layout import ClusterDir
from milena.up.plan import nodes_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypedDict

    from milena.up.settings import Settings

    class SnapshotNode(TypedDict):
        """A node in a snapshot. ``incarnation``: that of a broker's registration, null if it is not known."""

        name: str
        log_dirs: int
        incarnation: str | None

    class Brokers(TypedDict):
        """The brokers, for a controller that starts from a snapshot: their present addresses by id, and the ids of
        those whose incarnation has ended."""

        addresses: dict[int, tuple[str, int]]
        ended: list[int]

    class Manifest(TypedDict):
        """The content of snapshot.json."""

        format: int
        version: str
        nodes: list[SnapshotNode]
        has_tier: bool


FORMAT = 1
MANIFEST = "snapshot.json"
UNFINISHED = f"{MANIFEST}{private_files.SCRATCH}"
FICLONE = 0x40049409
"""The ioctl of Linux that clones a file (linux/fs.h)."""
NO_CLONES = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM})
NO_LINKS = frozenset({errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP})
COPIED_AT_ONCE = 1 << 20
"""Bytes."""
LEFT_OUT = ("-delete", ".deleted", ".tmp", ".cleaned", "remote-log-cleaning", "remote-log-index-cache", ".lock")
"""Endings of what is removed soon, or made again when it is needed."""
SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex")
IMMUTABLE = (".snapshot", "checkpoint", "partition.metadata", "meta.properties", "quorum-state")
"""Endings of files that are replaced as a whole, such as producer states, checkpoints and properties."""
TIER_FOLDER = "rsm.config.dir"
TIER_PARTS = ("kafka-tiered-storage", "milena-segments", "milena-tier.properties")
"""As in tiered.store.tier_names and tier_identity: what a tier's folder contains, except unfinished copies."""


class Copier:
    """Copies trees in the cheapest way that the file systems allow."""

    def __init__(self, *, of_snapshot: bool) -> None:
        """``of_snapshot``: no process has the files open that are copied."""
        self._of_snapshot = of_snapshot
        self._clones = True
        self._links = True

    def tree(self, source: str, target: str, *, immutable: bool = False) -> None:
        """Copy a folder that does not change now to a new one, whose parent exists. ``immutable``: none of its files is
        ever changed in place. Raises OSError."""
        os.mkdir(target)
        with os.scandir(source) as found:
            entries = [entry for entry in found if not entry.name.endswith(LEFT_OUT)]
        closed = closed_segments([entry.name for entry in entries])
        for entry in entries:
            path = os.path.join(target, entry.name)
            if entry.is_dir(follow_symlinks=False):
                self.tree(entry.path, path, immutable=immutable)
            elif entry.is_file(follow_symlinks=False):
                self.file(
                    entry.path, path, immutable=immutable or entry.name in closed or entry.name.endswith(IMMUTABLE)
                )

    def file(self, source: str, target: str, *, immutable: bool) -> None:
        """Copy one file; of a log also the time of its last change. Raises OSError."""
        found = os.stat(source)
        may_be_linked = immutable and not self._clones
        if not found.st_size:  # a node that has the file open may already have appended to it
            may_be_linked = self._of_snapshot
        if may_be_linked and self._links and self._link(source, target):
            return
        reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            if found.st_size and not (self._clones and self._clone(reading, writing)):
                while data := os.read(reading, COPIED_AT_ONCE):
                    left = memoryview(data)
                    while left:
                        left = left[os.write(writing, left) :]
            if target.endswith(".log"):
                os.utime(writing, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(reading)
            os.close(writing)

    def _clone(self, source: int, target: int) -> bool:
        import fcntl

        try:
            fcntl.ioctl(target, FICLONE, source)
        except OSError as error:
            if error.errno not in NO_CLONES:
                raise
            self._clones = False
        return self._clones

    def _link(self, source: str, target: str) -> bool:
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self._links = error.errno == errno.EMLINK  # which concerns one file
            return False
        return True


def closed_segments(names: list[str]) -> set[str]:
    """Return the files of a log's segments other than the last one."""
    bases = sorted(name[:-4] for name in names if name.endswith(".log"))
    return {base + suffix for base in bases[:-1] for suffix in SEGMENT_FILES}


def absolute(path: str) -> str:
    """Return the path of a snapshot as the functions of this module need it."""
    return os.path.abspath(os.path.expanduser(path))


@contextlib.contextmanager
def begun(path: str) -> Iterator[None]:
    """Make the folder of a new snapshot; it is empty again after an error in the block. Raises UserError if the folder
    has other content, or another process writes a snapshot there, and OSError.

    The manifest has its temporary name from the start and gets its own at the end; it is locked in between. So the next
    snapshot in this folder recognizes what a killed process has left, and removes it.
    """
    lock = _lock(path)
    try:
        _empty(path, but=UNFINISHED)
        yield
    except BaseException:
        _empty(path)
        raise
    finally:
        os.close(lock)


def _lock(path: str) -> int:
    """Return the descriptor with the lock of the manifest that is not finished. Raises UserError, OSError."""
    refusal = f"{path} exists and is not empty: name another folder for the snapshot"
    if os.path.lexists(path) and (found := os.listdir(path)) and UNFINISHED not in found:
        raise UserError(refusal)
    os.makedirs(path, exist_ok=True)
    lock = locks.acquire(os.path.join(path, UNFINISHED))
    if lock is None:
        raise UserError(f"{path}: another process writes a snapshot there")
    if MANIFEST in os.listdir(path):  # finished by another process just now
        os.close(lock)
        raise UserError(refusal)
    return lock


def _empty(path: str, *, but: str | None = None) -> None:
    for name in os.listdir(path):
        if name != but:
            remove(os.path.join(path, name))


def remove(path: str) -> None:
    """Remove a file or a tree, which another process may be removing, too."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def save(cluster: ClusterDir, path: str, incarnations: dict[str, str]) -> None:
    """Write a snapshot of a cluster whose nodes do not change their files now into an empty folder. ``incarnations``:
    those of brokers, by name. Raises UserError, OSError."""
    options = settings.load(cluster)
    tier = tier_folder(cluster, options)
    copier = Copier(of_snapshot=False)
    nodes: list[SnapshotNode] = []
    for plan in nodes_of(cluster, options):
        for source, target in zip(plan.log_dirs, log_dirs(path, plan.name, len(plan.log_dirs)), strict=True):
            if os.path.isdir(source):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                copier.tree(source, target)
        incarnation = incarnations.get(plan.name)
        nodes.append({"name": plan.name, "log_dirs": len(plan.log_dirs), "incarnation": incarnation})
    if tier is not None:
        copy_tier(copier, tier, ClusterDir(path).remote)
    settings.save(ClusterDir(path), options)
    manifest: Manifest = {"format": FORMAT, "version": VERSION, "nodes": nodes, "has_tier": tier is not None}
    import json

    private_files.replace(os.path.join(path, MANIFEST), json.dumps(manifest, indent=1) + "\n")


def read(path: str) -> Manifest:
    """Return what a snapshot is. Raises UserError if the folder has none, or one of another format."""
    import json

    file = os.path.join(path, MANIFEST)
    try:
        with open(file) as content:
            manifest: Manifest = json.load(content)
    except FileNotFoundError:
        raise UserError(f"{path} holds no snapshot (no {MANIFEST})") from None
    except (OSError, ValueError) as error:
        raise UserError(f"the snapshot cannot be read: {file}: {error}") from None
    if manifest.get("format") != FORMAT:
        raise UserError(f"{path} is a snapshot of format {manifest.get('format')}, and this version reads {FORMAT}")
    return manifest


def copy_tier(copier: Copier, source: str, target: str) -> None:
    """Copy the parts of a tier's folder that exist. Raises OSError."""
    os.makedirs(target, exist_ok=True)
    for part in TIER_PARTS:
        path = os.path.join(source, part)
        if os.path.isdir(path):
            copier.tree(path, os.path.join(target, part), immutable=True)
        elif os.path.exists(path):
            copier.file(path, os.path.join(target, part), immutable=True)


def log_dirs(root: str, name: str, count: int) -> list[str]:
    """Return the log directories of a node in a cluster's directory or a snapshot."""
    data = ClusterDir(root).data(name)
    return [data, *(f"{data}-{number}" for number in range(2, count + 1))]


def tier_folder(cluster: ClusterDir, options: Settings) -> str | None:
    """Return the folder of a cluster's tier; None without a tier. Raises UserError for a tier that is no folder."""
    place = tier_location.place_of(options, nodes_of(cluster, options)[1])
    if place is not None and "://" in place:
        raise UserError(f"the remote tier {place} is not a folder, so it cannot be in a snapshot")
    return place


def unpack(path: str, cluster: ClusterDir) -> None:
    """Make a new cluster's directory from a snapshot. Raises UserError if there is a cluster already."""
    path = absolute(path)
    manifest = read(path)
    if cluster.exists():
        raise UserError(f"{cluster.path} holds a cluster already: --from makes a new one")
    copier = Copier(of_snapshot=True)
    try:
        for node in manifest["nodes"]:
            os.makedirs(cluster.folder(node["name"]), exist_ok=True)
            both = [log_dirs(root, node["name"], node["log_dirs"]) for root in (path, cluster.path)]
            for source, target in zip(*both, strict=True):
                if os.path.isdir(source):
                    copier.tree(source, target)
            resume(cluster, node)
        if manifest["has_tier"]:
            copy_tier(copier, ClusterDir(path).remote, cluster.remote)
        _save_settings(ClusterDir(path), cluster, has_tier=manifest["has_tier"])
    except OSError as error:
        raise UserError(f"the snapshot cannot be used: {reason_of(error)}") from None


def _save_settings(source: ClusterDir, cluster: ClusterDir, *, has_tier: bool) -> None:
    """Take over the options of a snapshot, except what must differ: the tier's folder and the controller's port."""
    options = settings.load(source)
    options.controller_port = None
    if has_tier:
        options.tier = ""
        options.overrides = [(key, value) for key, value in options.overrides if key != TIER_FOLDER]
    settings.save(cluster, options)


def resume(cluster: ClusterDir, node: SnapshotNode) -> None:
    """Let a node's broker continue with its incarnation: it keeps its epoch, and its place in every ISR. One that was
    down begins a new incarnation."""
    path = cluster.resume(node["name"])
    if node["incarnation"] is not None:
        private_files.replace(path, node["incarnation"] + "\n")
    else:
        with contextlib.suppress(FileNotFoundError):  # of a restore that was interrupted
            os.unlink(path)


def move(cluster: ClusterDir, controller: str, addresses: dict[int, str]) -> None:
    """Let a controller replace the brokers' addresses of the snapshot by ``addresses``, ``host:port`` by id, before any
    broker uses them: they may be those of another cluster. It fences the brokers that do not ``resume``: their next
    incarnation may register at once, instead of a session timeout later."""
    import json

    parts = {number: address.rpartition(":") for number, address in addresses.items()}
    places = {number: (host.strip("[]"), int(port)) for number, (host, _, port) in parts.items()}
    ended = [number for number in places if not os.path.exists(cluster.resume(f"broker-{number}"))]
    brokers: Brokers = {"addresses": places, "ended": ended}
    private_files.replace(cluster.resume(controller), json.dumps(brokers) + "\n")
