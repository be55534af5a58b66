"""How Kafka names the folders and files of a log.

A partition's folder is ``topic-partition``. A folder that is being deleted, or is not in use yet, has a random id and a
suffix (``topic-partition.<32 hex digits>-delete``, ``-stray``, ``-future``). The name of each segment file is the base
offset in 20 digits and a suffix.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
"""Of the files of one segment."""
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
"""The suffix of a file that is removed after ``file.delete.delay.ms``."""
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
TEMPORARY: Final = ".tmp"

EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
REMOTE_CLEANING: Final = "remote-log-cleaning"
"""In the folder of a partition: the working folder for cleaning its segments in the tier."""
REMOTE_FOLDER: Final = "remote-storage-folder-checkpoint"
"""Contains the folder of the tier that the broker last used."""

_DIGITS: Final = 20
_LONGEST_NAME: Final = 255


class FolderKind(Enum):
    """The purpose of a partition's folder, by its suffix."""

    CURRENT = ""
    DELETE = "-delete"
    STRAY = "-stray"
    FUTURE = "-future"


class PartitionFolder(NamedTuple):
    """The parts of the name of a partition's folder."""

    topic: str
    partition: int
    kind: FolderKind


def segment_file(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def offset_of_file(name: str) -> int | None:
    """Return the offset at the beginning of the file name of a segment or snapshot, None for other files."""
    digits, dot, _ = name.partition(".")
    return int(digits) if dot and len(digits) == _DIGITS and digits.isdecimal() else None


def partition_folder(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_folder(topic: str, partition: int, unique: str, kind: FolderKind) -> str:
    """Return the name of a folder with the suffix of ``kind``. ``unique`` is a random id in hex. A long topic name is
    truncated."""
    tail = f"-{partition}.{unique}{kind.value}"
    return topic[: _LONGEST_NAME - len(tail)] + tail


def has_room_for_mark(topic: str, partition: int) -> bool:
    """Whether the complete topic name fits into the name of a marked folder, so that it can be parsed from it."""
    return len(marked_folder(topic, partition, "0" * 32, FolderKind.FUTURE)) == len(topic) + len(
        f"-{partition}.{'0' * 32}{FolderKind.FUTURE.value}"
    )


def parse_partition_folder(name: str) -> PartitionFolder:
    """Parse the name of a partition's folder. Raises ValueError if it does not have Kafka's format."""
    kind = next((kind for kind in FolderKind if kind.value and name.endswith(kind.value)), FolderKind.CURRENT)
    plain = name
    if kind is not FolderKind.CURRENT:
        plain, dot, unique = name[: -len(kind.value)].rpartition(".")
        if not dot or not unique:
            plain, kind = name, FolderKind.CURRENT
    topic, dash, digits = plain.rpartition("-")
    if not dash or not topic or not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"folder {name!r} is not named TOPIC-PARTITION: log directories hold only partitions")
    return PartitionFolder(topic, int(digits), kind)
