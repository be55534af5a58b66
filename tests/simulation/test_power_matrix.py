"""The power is lost right before a sync, rename, removal or truncation of each kind of file: no acknowledged record is
lost, no log begins later than it should, and every node starts again.

The tests try one call for each kind of file; `MILENA_EXPLORE=20` tries 20 calls of each operation on each kind,
at random.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from milena.lab.cluster import NodeEnded
from milena.lab.world.disk import SimulatedFile
from milena.protocol.errors import KafkaError
from milena.runtime.randomness import Randomness
from tests.fixtures.properties import EXPLORE
from tests.simulation.power_matrix import Call, Losers, run
from tests.simulation.steps import DIRS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SEED = 1
FINAL = ("sync", "rename", "remove", "truncate")
"""The operations that make a change durable."""
TABLE = Path(__file__).parents[2] / "docs" / "reliability.md"
KINDS = (
    ".kafka_cleanshutdown",
    "bootstrap.checkpoint",
    "index",
    "leader-epoch-checkpoint",
    "log directory",
    "log-start-offset-checkpoint",
    "meta.properties",
    "metadata log",
    "metadata log index",
    "metadata snapshot",
    "milena-tier.properties",
    "object of the tier",
    "partition folder",
    "partition.metadata",
    "producer snapshot",
    "quorum-state",
    "recovery-point-offset-checkpoint",
    "remote-log-index-cache",
    "remote-log-metadata-cache",
    "remote-storage-folder-checkpoint",
    "renamed folder",
    "replication-offset-checkpoint",
    "segment",
)
NEVER_SYNCED = {".lock", "committed-offset"}
"""Files that are only opened and written in place."""


@cache
def calls() -> tuple[Call, ...]:
    """The calls of a run without a power loss."""
    return tuple(run(SEED, None).calls)


def chosen(kind: str) -> list[tuple[Call, Losers, float]]:
    """Each call to try, the machines that lose power, and the seconds until they are started again."""
    random = Randomness(hash_of(kind)) if not EXPLORE else Randomness()
    found = []
    for operation in FINAL:
        group = [call for call in calls() if (call.kind, call.operation) == (kind, operation)]
        found += [random.choice(group) for _ in range(max(1, EXPLORE)) if group]
    tries = [(call, random.choice(list(Losers)), random.choice((0.0, 5.0))) for call in found]
    return tries if EXPLORE else [random.choice(tries)]


def hash_of(kind: str) -> int:
    return sum(kind.encode())


@pytest.mark.timeout(0 if EXPLORE else 120)
@pytest.mark.parametrize("kind", KINDS)
def test_a_power_loss_before_a_call_loses_no_acknowledged_record(kind: str) -> None:
    for call, losers, seconds in chosen(kind):
        try:
            run(SEED, call.number, losers, seconds)
        except Exception as error:
            error.add_note(f"run({SEED}, {call.number}, {losers}, {seconds}): the power went before {call}")
            raise


def test_the_workload_changes_every_kind_of_file_and_the_table_has_a_row_for_each() -> None:
    found = {call.kind for call in calls()}
    assert found - NEVER_SYNCED == set(KINDS)
    rows = re.findall(r"^\| ([^|]+?) \|", TABLE.read_text(), re.MULTILINE)
    missing = [kind for kind in found if not any(kind in row for row in rows)]
    assert not missing, f"{TABLE.name} has no row for {missing}"


def numbers_of(kind: str, operation: str) -> list[int]:
    return [call.number for call in calls() if (call.kind, call.operation) == (kind, operation)]


@pytest.mark.parametrize("place", ["/tier/", DIRS[0], "/data/__cluster_metadata-0"])
def test_the_matrix_finds_files_that_are_not_synced(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = SimulatedFile.sync
    monkeypatch.setattr(SimulatedFile, "sync", lambda file: None if file.path.startswith(place) else sync(file))
    with pytest.raises((AssertionError, KafkaError, NodeEnded)):
        lose_all_at(numbers_of("segment", "sync")[-60::10])


def lose_all_at(numbers: Sequence[int]) -> None:
    for number in numbers:
        run(SEED, number, Losers.ALL)
