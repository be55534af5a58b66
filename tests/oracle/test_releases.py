"""``milena/releases.tsv`` and the tables of the newest release have what Kafka's classes of each release print."""

from __future__ import annotations

import pytest

from milena.protocol.features import RANGES, metadata_version_of, ranges
from milena.protocol.schemas.registry import REGISTRY
from milena.releases import NEWEST, RELEASES, differences
from tests.oracle import kafka, release_tables

KINDS = ("api", "feature", "broker", "topic", "former")


def printed(release: str) -> list[list[str]]:
    try:
        return release_tables.printed(release)
    except kafka.NoKafka as reason:
        pytest.skip(f"no jars of Kafka {release}: {reason}")


def check_level(release: str) -> None:
    """Compare the metadata.version of new clusters."""
    (level,) = (line[1] for line in printed(release) if line[0] == "level")
    assert metadata_version_of(level) == metadata_version_of(release) == ranges(release)["metadata.version"][1]


@pytest.mark.parametrize("release", RELEASES[:-1])
def test_an_earlier_release_differs_from_the_newest_as_the_table_says(release: str) -> None:
    check_level(release)
    ours = {(kind, name): text for kind in KINDS for name, text in differences(release, kind).items()}
    assert ours == release_tables.columns(release)


def test_the_newest_release_has_the_versions_and_levels_of_the_tables() -> None:
    check_level(NEWEST)
    found = release_tables.table_of(NEWEST)
    apis = {api.key.name: str(api.kafka) for api in REGISTRY.values()}
    shown = {name: text for (kind, name), text in found.items() if kind == "api"}
    # Kafka's classes list Produce from 0, and telemetry only with a reporter.
    assert apis.keys() - shown.keys() <= {"GET_TELEMETRY_SUBSCRIPTIONS", "PUSH_TELEMETRY"}
    assert shown == {name: "0-13" if name == "PRODUCE" else apis[name] for name in shown}
    levels = {name: f"{low}-{high}" for name, (low, high) in RANGES.items()}
    assert levels == {name: text for (kind, name), text in found.items() if kind == "feature"}
