"""Whose a tier is: a file beside Kafka's part of it names the cluster, so that no broker copies into another place.

A mount point without its mount looks like an empty tier. Local segments go once they are copied, so what is copied
there is lost with the remounting. The file is made once, with a new tier, or for one that is there without it, as older
versions and Kafka leave it; ``milena tier restore`` makes it anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from milena.runtime.disk import Disk
from milena.tiered.store.remote_storage import RemoteStorageError, RetriableRemoteStorageError

IDENTITY: Final = "milena-tier.properties"
_KEY: Final = "cluster.id="


@dataclass(frozen=True, slots=True)
class Claim:
    """A broker's: ``cluster_id`` is None as long as it is not known."""

    cluster_id: Callable[[], str | None]
    may_begin: Callable[[], bool]
    """Whether nothing was ever copied, as far as the metadata is known, so that a tier may begin in an empty place."""

    def check(self, place: str, found: bytes | None, *, is_there: bool) -> bytes | None:
        """What to write, None where the tier is this cluster's. ``found`` is the file, ``is_there``: whether Kafka's
        part is there, or has anything.

        Raises RemoteStorageError where it is another cluster's, RetriableRemoteStorageError where it is not there."""
        own = self.cluster_id()
        if own is None:
            raise RetriableRemoteStorageError(f"{place}: the cluster's id is not known yet")
        if found is not None:
            owner = parse(found)
            if owner != own:
                raise RemoteStorageError(
                    f"{place} is the tier of cluster {owner or '(unreadable)'}, as {IDENTITY} says, and this is "
                    f"cluster {own}"
                )
        if not is_there and not self.may_begin():
            raise RetriableRemoteStorageError(
                f"{place} has no tier, and the metadata tells of segments that were copied, or is not known yet: mount "
                "it, or name the place where it is"
            )
        return None if found is not None else encode(own)


def encode(cluster_id: str) -> bytes:
    return f"# The Kafka cluster that this remote tier belongs to\n{_KEY}{cluster_id}\n".encode()


def parse(data: bytes) -> str | None:
    """The cluster's id; None where there is none."""
    for line in data.decode(errors="replace").splitlines():
        if line.startswith(_KEY):
            return line.removeprefix(_KEY).strip() or None
    return None


def read_identity(disk: Disk, folder: str) -> bytes | None:
    """None where there is none. Raises OSError."""
    try:
        return disk.read(f"{folder}/{IDENTITY}")
    except FileNotFoundError:
        return None


def write_identity(disk: Disk, folder: str, owner: str, data: bytes) -> None:
    """Synced. Brokers may do so at the same time. Raises OSError."""
    temporary = f"{folder}/{IDENTITY}.{owner}"
    disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.append([data])
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, f"{folder}/{IDENTITY}")
