"""The owner of a tier: a file beside Kafka's part of it names the cluster, so that no broker copies to a wrong place.

A mount point without its mount looks like an empty tier. Local segments are deleted once they are copied, so segments
copied there are lost when the tier is mounted again. The file is created once, with a new tier, or for an existing one
without it, as older versions and Kafka leave it; ``milena tier restore`` replaces it.
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
    """A broker's claim to a tier for its cluster. ``cluster_id``: None while it is not known."""

    cluster_id: Callable[[], str | None]
    may_begin: Callable[[], bool]
    """Whether, as far as the metadata is known, nothing was ever copied, so that a new tier may be created in an empty
    place."""

    def check(self, place: str, found: bytes | None, *, is_there: bool) -> bytes | None:
        """Return the content to write to the file; None if the tier already belongs to this cluster. ``found`` is the
        present content; ``is_there``: whether Kafka's part exists and, in a store without folders, is not empty.

        Raises RemoteStorageError if it is another cluster's, RetriableRemoteStorageError if there is no tier."""
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
                f"{place} has no tier, but the metadata lists copied segments, or is not known yet: mount "
                "it, or name the place where it is"
            )
        return None if found is not None else encode(own)


def encode(cluster_id: str) -> bytes:
    return f"# The Kafka cluster that this remote tier belongs to\n{_KEY}{cluster_id}\n".encode()


def parse(data: bytes) -> str | None:
    """Return the cluster's id; None if there is none."""
    for line in data.decode(errors="replace").splitlines():
        if line.startswith(_KEY):
            return line.removeprefix(_KEY).strip() or None
    return None


def read_identity(disk: Disk, folder: str) -> bytes | None:
    """Return the content of the file; None if there is no file. Raises OSError."""
    try:
        return disk.read(f"{folder}/{IDENTITY}")
    except FileNotFoundError:
        return None


def write_identity(disk: Disk, folder: str, owner: str, data: bytes) -> None:
    """Write and sync the file. Several brokers may do this at the same time. Raises OSError."""
    temporary = f"{folder}/{IDENTITY}.{owner}"
    disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.append([data])
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, f"{folder}/{IDENTITY}")
