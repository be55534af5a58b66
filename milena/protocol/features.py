"""Kafka's features and their levels (KIP-584, KIP-1022), and the changes in each level of ``metadata.version``.

``metadata.version`` determines the records that the controller writes, and their versions. Its levels have names; the
name of a release means the last level of that release. ``kraft.version`` is stored in control records instead of
FeatureLevel records, and is 0 with static voters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milena.releases import ABSENT, differences

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
REMOTE_COMPACTION: Final = "milena.remote.log.compaction"
"""A feature of Milena, never finalized: a broker that registers it with the levels 0 to 1 can host compacted topics in
the tier. Kafka's controller stores an unknown feature of a broker if level 0 is in its range
(``ClusterControlManager.processRegistrationFeature``)."""

DISABLED: Final = (0, 0)
"""The range of a feature that a node does not support."""
RANGES: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 33),
    KRAFT_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    GROUP_VERSION: (0, 1),
    ELR_VERSION: (0, 1),
    SHARE_VERSION: (0, 2),
    STREAMS_VERSION: (0, 1),
}
"""The lowest and highest level of each feature in Kafka 4.4."""

LATEST_METADATA_VERSION: Final = 33

_INTERNAL_VERSIONS: Final = (
    ("3.3", 3, 7),
    ("3.4", 0, 8),
    ("3.5", 0, 9),
    ("3.6", 0, 12),
    ("3.7", 0, 15),
    ("3.8", 0, 20),
    ("3.9", 0, 21),
    ("4.0", 0, 22),
    ("4.1", 0, 26),
    ("4.2", 0, 28),
    ("4.3", 0, 30),
    ("4.4", 0, 31),
)
"""Release, number of its first supported internal version, level of that version."""

EPOCH_BUMP_VERSION: Final = 2
"""From this level of ``transaction.version`` on each transaction has its own producer epoch (KIP-890,
``TransactionVersion.supportsEpochBump``)."""

METADATA_TRANSACTIONS: Final = 13
"""3.6-IV1: Begin, End and AbortTransaction records."""
CONTROLLER_REGISTRATION: Final = 15
"""3.7-IV0."""
DIRECTORY_ASSIGNMENT: Final = 17
"""3.7-IV2: log directories of brokers and replicas (KIP-858)."""
NO_EPOCH_BUMP_ON_ISR_SHRINK: Final = 12
"""3.6-IV0."""
TRANSACTIONS_2: Final = 24
"""4.0-IV2: a new cluster has transaction.version 2 (KIP-890)."""
ELR_RECORDS: Final = 23
"""4.0-IV1: eligible leader replicas in partition records (KIP-966)."""
CORDONED_DIRECTORIES: Final = 30
"""4.3-IV0."""
CONTROLLER_UNREGISTRATION: Final = 33
"""4.4-IV2: UnregisterController records."""

METADATA_CHANGES: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33})
"""Levels that change the written records, so that a downgrade from such a level to a lower one is refused
(``MetadataVersion.didMetadataChange``)."""


def ranges(release: str) -> dict[str, tuple[int, int]]:
    """Return the lowest and highest level of each feature in a release of Kafka."""
    limits = differences(release, "feature")
    return {name: _levels(limits[name]) if name in limits else levels for name, levels in RANGES.items()}


def _levels(text: str) -> tuple[int, int]:
    if text == ABSENT:
        return DISABLED
    low, _, high = text.partition("-")
    return (int(low), int(high))


def metadata_version_names() -> dict[str, int]:
    """Return the levels by name: ``4.0-IV3`` and, for the last level of each release, ``4.0``."""
    names: dict[str, int] = {}
    starts = [*(level for _, _, level in _INTERNAL_VERSIONS[1:]), LATEST_METADATA_VERSION + 1]
    for (release, number, level), end in zip(_INTERNAL_VERSIONS, starts, strict=True):
        for step in range(end - level):
            names[f"{release}-IV{number + step}"] = level + step
        names[release] = end - 1
    return names


def metadata_version_of(release: str) -> int:
    """Return the level of a release or internal version (``4.3``, ``4.0.1``, ``4.0-IV3``). Raises ValueError with the
    known names."""
    names = metadata_version_names()
    level = names.get(release)
    if level is None:
        level = names.get(".".join(release.split(".")[:2]))
    if level is None:
        releases = ", ".join(name for name in names if "-" not in name)
        raise ValueError(f"unknown release version {release!r}; known are {releases} and their internal versions")
    return level


def metadata_version_name(level: int) -> str:
    """Return the name of a level, as in ``4.4-IV2``; the number if it has none."""
    return next(
        (name for name, found in metadata_version_names().items() if found == level and "-" in name), str(level)
    )


def with_defaults(levels: Mapping[str, int]) -> dict[str, int]:
    """Return ``levels`` with those that a new cluster of its metadata.version gets without an option: of the features
    that Milena serves, transaction.version (Kafka's ``Feature.defaultLevel``)."""
    metadata = levels.get(METADATA_VERSION, LATEST_METADATA_VERSION)
    transactions = RANGES[TRANSACTION_VERSION][1] if metadata >= TRANSACTIONS_2 else 0
    return {METADATA_VERSION: metadata, TRANSACTION_VERSION: transactions, **levels}


def unmet_dependency(feature: str, level: int, levels: Mapping[str, int]) -> str | None:
    """Return a message if ``feature`` at ``level`` needs a level of another feature that ``levels`` does not have; None
    if not."""
    if feature == ELR_VERSION and level >= 1 and levels.get(METADATA_VERSION, 0) < ELR_RECORDS:
        return f"{ELR_VERSION}={level} needs {METADATA_VERSION} at {ELR_RECORDS} or above"
    return None
