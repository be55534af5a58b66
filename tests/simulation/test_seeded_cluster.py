"""A controller and three to five brokers under load and faults: what Kafka promises is kept, a seed has one history.

`make sim SEED=n` runs one seed and prints its trace; `make soak SECONDS=n` runs others. ``MILENA_SEEDS`` sets how many
run here, on all cores: more than half of the simulation's time in `make test` is theirs. Odd seeds have a tier, two of
four more groups than one, eight of sixteen a compacted topic.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import TypeGuard, cast

import pytest

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
from milena.lab.load.seeded import has_compaction, has_groups, run_seed
from milena.lab.world.trace import quiet_logs

SEEDS = int(os.environ.get("MILENA_SEEDS", "200"))
AT_ONCE = 10
"""Seeds of one test."""
REGRESSIONS: tuple[int, ...] = (329, 335, 420)
"""Seeds beyond the first ones that have found something."""
ALL = (*range(SEEDS), *REGRESSIONS)
OF_GROUPS: tuple[type[Event], ...] = (Join, Sync, MemberHeartbeat, OffsetCommit, OffsetFetch, OffsetDelete, GroupDelete)
OF_KEYS: tuple[type[Event], ...] = (KeyedWrite, FullRead)
ENOUGH: dict[type[Event], int] = {FullRead: 2}
"""The reads at the end of a history, one for each partition: rough seeds let no other come to its end."""
ROOT = Path(__file__).parents[2]
HISTORY_SECONDS = 600
"""For the ten seeds of one test; on a busy machine each may take a minute."""


def judge(seed: int) -> str:
    """What was wrong with a seed; empty where nothing was. Runs in a process of its own."""
    quiet_logs()
    try:
        report = run_seed(seed)
    except Exception:
        return traceback.format_exc()
    sends = sum(isinstance(event, Send) for event in report.history)
    polls = sum(isinstance(event, Poll) for event in report.history)
    if sends < 100 or polls < 20:
        return f"only {sends} sends and {polls} polls"
    wanted = (*(OF_GROUPS if has_groups(seed) else ()), *(OF_KEYS if has_compaction(seed) else ()))
    rare = [kind.__name__ for kind in wanted if count(kind, report.history) < ENOUGH.get(kind, 3)]
    if rare:
        return f"hardly any {', '.join(rare)}"
    return "\n".join(report.violations[:10])


def count(kind: type[Event], history: list[Event]) -> int:
    """How many were answered, and not refused."""
    return sum(
        isinstance(event, kind) and getattr(event, "outcome", RequestOutcome.OK) is RequestOutcome.OK
        for event in history
    )


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest) -> Iterator[dict[int, Future[str]]]:
    """The seeds of all selected tests run in the order of these tests, so that none waits for another one's seeds."""
    chosen = [cast(int, item.callspec.params["first"]) for item in request.session.items if _is_of_seeds(item)]
    # A new interpreter for each core: the tests around may have left threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=context) as pool:
        yield {seed: pool.submit(judge, seed) for first in chosen for seed in ALL[first : first + AT_ONCE]}
        pool.shutdown(cancel_futures=True)


def _is_of_seeds(item: pytest.Item) -> TypeGuard[pytest.Function]:
    return isinstance(item, pytest.Function) and item.function is test_promises_are_kept


@pytest.mark.timeout(HISTORY_SECONDS)
@pytest.mark.parametrize("first", range(0, len(ALL), AT_ONCE))
def test_promises_are_kept(verdicts: dict[int, Future[str]], first: int) -> None:
    for seed in ALL[first : first + AT_ONCE]:
        assert not verdicts[seed].result(), f"make sim SEED={seed}\n{verdicts[seed].result()}"


@pytest.mark.parametrize("seed", [7, 5])
def test_a_seed_has_one_history_in_any_process(seed: int) -> None:
    """`milena sim` prints the same trace, with all that the nodes log, whatever the order of sets and of addresses."""
    one, other = (_trace_of(seed, hash_seed) for hash_seed in ("1", "2"))
    assert one == other
    assert "passed, no violations, digest" in one.splitlines()[-1]


def test_another_seed_has_another_history() -> None:
    assert run_seed(1).digest != run_seed(2).digest


def _trace_of(seed: int, hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "milena", "sim", "--seed", str(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
