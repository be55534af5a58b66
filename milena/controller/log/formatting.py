"""The first records of a new metadata log, as ``kafka-storage format`` writes them.

A new cluster starts at the metadata.version of ``kafka.version``, with transaction.version 2 from 4.0-IV2 on and every
other feature at level 0, unless options say otherwise. The records are kept in ``bootstrap.checkpoint`` next to the
metadata log until the first controller has appended them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from milena.config.values import ConfigError
from milena.node.metadata.snapshots import CorruptMetadataSnapshot, read_records, snapshot_batches
from milena.protocol.features import (
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    metadata_version_of,
    ranges,
    unmet_dependency,
    with_defaults,
)
from milena.protocol.metadata_records import FeatureLevelRecord, MetadataRecord
from milena.protocol.records.batch import CorruptBatch
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import LeaderEpoch
from milena.releases import KEY as KAFKA_VERSION
from milena.releases import NEWEST
from milena.runtime.disk import Disk
from milena.runtime.numbers import whole

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"


@dataclass(frozen=True, slots=True)
class Formatting:
    """The options for formatting a new cluster. They have no effect on an existing one."""

    cluster_id: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(
        cls,
        *,
        cluster_id: str | None = None,
        features: Sequence[str] = (),
        release_version: str | None = None,
        release: str = NEWEST,
    ) -> Formatting:
        """Parse options; features are ``NAME=LEVEL``. ``release``: the release that the node behaves like, which limits
        the levels and determines the default. Raises ConfigError naming the option."""
        supported = ranges(release)
        levels = dict(_parse_feature(text, supported) for text in features)
        if release_version is not None:
            if METADATA_VERSION in levels:
                raise ConfigError(f"--release-version and --feature {METADATA_VERSION} cannot be combined")
            try:
                levels[METADATA_VERSION] = metadata_version_of(release_version)
            except ValueError as error:
                raise ConfigError(f"--release-version: {error}") from None
            if levels[METADATA_VERSION] > supported[METADATA_VERSION][1]:
                raise ConfigError(f"--release-version {release_version}: {KAFKA_VERSION} is {release}")
        levels.setdefault(METADATA_VERSION, supported[METADATA_VERSION][1])
        for name, level in levels.items():
            unmet = unmet_dependency(name, level, levels)
            if unmet is not None:
                raise ConfigError(f"--feature {name}={level}: {unmet}")
        return cls(cluster_id or None, with_defaults(levels))

    def records(self) -> list[FeatureLevelRecord]:
        """Return the feature levels: metadata.version first, the others by name. A feature at level 0 has no record."""
        levels = with_defaults(self.features)
        names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
        return [FeatureLevelRecord(name=name, feature_level=levels[name]) for name in names if levels[name]]


def _parse_feature(text: str, supported: Mapping[str, tuple[int, int]]) -> tuple[str, int]:
    name, separator, level = text.partition("=")
    number = whole(level.strip())
    if not separator or number is None:
        raise ConfigError(f"--feature {text!r} is not of the form NAME=LEVEL")
    name = name.strip()
    if name not in supported:
        raise ConfigError(f"--feature {name!r} is unknown; known are {', '.join(supported)}")
    lowest, highest = supported[name]
    if not lowest <= number <= highest:
        raise ConfigError(f"--feature {name}={number}: the level must be between {lowest} and {highest}")
    if name == KRAFT_VERSION and number:
        raise ConfigError(f"--feature {name}={number}: the voters of this cluster are static, so it stays at 0")
    return name, number


def write_bootstrap(disk: Disk, folder: str, formatting: Formatting, now_ms: int) -> None:
    """Write ``bootstrap.checkpoint`` into a metadata log directory. Blocking. Raises OSError."""
    batches = snapshot_batches(
        formatting.records(),
        LeaderEpoch(0),
        metadata_version=LATEST_METADATA_VERSION,
        last_timestamp=0,
        now_ms=now_ms,
    )
    disk.write_atomic(f"{folder}/{BOOTSTRAP_FILE}", b"".join(batches))


def read_bootstrap(disk: Disk, folder: str) -> list[MetadataRecord] | None:
    """Return the records of ``bootstrap.checkpoint``; None if there is no such file. Raises OSError,
    CorruptMetadataSnapshot."""
    path = f"{folder}/{BOOTSTRAP_FILE}"
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return None
    try:
        return [record for record in read_records(memoryview(data)) if isinstance(record, MetadataRecord)]
    except (CorruptBatch, DecodeError) as error:
        raise CorruptMetadataSnapshot(f"{path}: {error}") from error
