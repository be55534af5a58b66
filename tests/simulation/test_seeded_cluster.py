"""A controller and three to five brokers under load and faults: Kafka's guarantees hold, and a seed has one history.

`milena sim --seed N` runs one seed and prints its trace; `milena sim --soak SECONDS` runs others. ``MILENA_SEEDS`` sets
how many run here, ``MILENA_FIRST_SEED`` the first one, and ``MILENA_STEPS`` the number of node faults in each. Odd
seeds have a tier, two of four more groups than one, eight of sixteen a compacted topic, one of three transactions.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from milena.lab.chaos.simulated import seeds
from milena.lab.chaos.simulated.seeds import STEPS, has_compaction, has_groups, has_transactions, run_seed
from milena.lab.cluster import NodeEnded, SimulatedCluster
from milena.lab.histories.anomalies import Anomaly, Violation
from milena.lab.histories.events import Event, Poll, RequestOutcome, Send
from milena.lab.histories.group_events import (
    GroupDelete,
    Join,
    MemberHeartbeat,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Sync,
)
from milena.lab.histories.keyed import FullRead, KeyedWrite
from milena.lab.histories.transactions.events import CommittedPoll, TransactionalSend, TransactionEnd
from milena.lab.invariants.broken import InvariantBroken
from milena.lab.world.trace import quiet_logs
from tests.simulation.kept_pages import run_kept

SEEDS = int(os.environ.get("MILENA_SEEDS") or 20)
FIRST = int(os.environ.get("MILENA_FIRST_SEED") or 0)
FAULTS = int(os.environ.get("MILENA_STEPS") or 2)
REGRESSIONS: tuple[int, ...] = (329, 335, 420)
"""Seeds that have found a bug, with as many faults as `milena sim` has by default."""
CASES = [
    *((seed, FAULTS) for seed in range(FIRST, FIRST + SEEDS)),
    *(pytest.param(seed, STEPS, marks=pytest.mark.slow) for seed in REGRESSIONS),
]
OF_GROUPS: tuple[type[Event], ...] = (Join, Sync, MemberHeartbeat, OffsetCommit, OffsetFetch, OffsetDelete, GroupDelete)
OF_KEYS: tuple[type[Event], ...] = (KeyedWrite, FullRead)
OF_TRANSACTIONS: tuple[type[Event], ...] = (TransactionalSend, TransactionEnd, CommittedPoll)
ENOUGH: dict[type[Event], int] = {FullRead: 2}
"""The final reads of a history, one for each partition: with many faults no other read may succeed."""
ROOT = Path(__file__).parents[2]
SEED_SECONDS = 300
"""The limit for one seed, on a busy machine."""


def count(kind: type[Event], history: list[Event]) -> int:
    """The number of operations that succeeded."""
    return sum(
        isinstance(event, kind) and getattr(event, "outcome", RequestOutcome.OK) is RequestOutcome.OK
        for event in history
    )


@pytest.mark.seeds
@pytest.mark.timeout(SEED_SECONDS)
@pytest.mark.parametrize(("seed", "steps"), CASES)
def test_the_guarantees_of_kafka_hold(seed: int, steps: int) -> None:
    quiet_logs()
    report = run_kept(seed, steps)
    assert not report.violations, "\n".join([f"milena sim --seed {seed} --steps {steps}", *report.violations[:10]])
    assert sum(isinstance(event, Send) for event in report.history) >= 100
    assert sum(isinstance(event, Poll) for event in report.history) >= 20
    expected = (
        *(OF_GROUPS if has_groups(seed) else ()),
        *(OF_KEYS if has_compaction(seed) else ()),
        *(OF_TRANSACTIONS if has_transactions(seed) else ()),
    )
    rare = [kind.__name__ for kind in expected if count(kind, report.history) < ENOUGH.get(kind, 3)]
    assert not rare, "these were hardly ever answered"


@pytest.mark.timeout(2 * SEED_SECONDS)
@pytest.mark.parametrize(
    ("seed", "steps"), [*(pytest.param(seed, STEPS, marks=pytest.mark.slow) for seed in (5, 7)), (5, 1)]
)
def test_a_seed_has_one_history_in_any_process(seed: int, steps: int) -> None:
    """`milena sim` prints the same trace, with all that the nodes log, whatever the order of sets and of addresses."""
    one, other = (_trace_of(seed, steps, hash_seed) for hash_seed in ("1", "2"))
    assert one == other
    assert "passed, no violations, digest" in one.splitlines()[-1]


def test_a_node_that_does_not_shut_down_in_order_fails_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop_broker(_cluster: SimulatedCluster, number: int) -> None:
        raise NodeEnded(f"broker {number} ended before its stop was done")

    monkeypatch.setattr(SimulatedCluster, "stop_broker", stop_broker)
    with pytest.raises(NodeEnded, match="before its stop was done"):
        run_seed(0, steps=0)


def test_a_failed_seed_keeps_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Violation(Anomaly.LOST_WRITE, "firm-0", "a record was acknowledged at 3.250 and is not in the log")
    monkeypatch.setattr(seeds, "check", lambda _history: [lost])
    report = run_kept(0, 0, tmp_path)
    page = (tmp_path / "seed-0-0.html").read_text(encoding="utf-8")
    assert report.violations == [f"its page: {tmp_path / 'seed-0-0.html'}", str(lost)]
    assert "milena sim --seed 0 --steps 0" in page and "failed, 1 violation" in page
    assert '"where":"firm-0","text":"a record was acknowledged at 3.250 and is not in the log","at":3.25' in page


def test_a_seed_that_ends_with_an_error_keeps_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(*_: object) -> None:
        raise InvariantBroken("firm-0: two leaders in one epoch")

    monkeypatch.setattr(seeds, "work", work)
    with pytest.raises(InvariantBroken) as caught:
        run_kept(0, 0, tmp_path)
    assert caught.value.__notes__ == [f"its page: {tmp_path / 'seed-0-0.html'}"]
    page = (tmp_path / "seed-0-0.html").read_text(encoding="utf-8")
    assert "two leaders in one epoch" in page and "brokers are ready" in page


@pytest.mark.slow
def test_another_seed_has_another_history() -> None:
    assert run_seed(1).digest != run_seed(2).digest


def _trace_of(seed: int, steps: int, hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "milena", "sim", "--seed", str(seed), "--steps", str(steps)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=SEED_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
