"""Every scenario in every variant, in the simulated world and on real processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from milena.lab.scenarios.script import (
    PROCESSES,
    SIMULATION,
    all_scenarios,
    is_comparison,
    load,
    script_of,
    source,
    variants_of,
    worlds_of,
)
from milena.lab.scenarios.simulated import play_simulated
from milena.testing.scenario_processes import play_on_processes


def runs(world: str) -> list[tuple[str, str]]:
    """All variants of the scenarios that this world can play."""
    found = [one for one in map(source, all_scenarios()) if world in worlds_of(one) and not is_comparison(one)]
    return [(data["id"], variant) for data in found for variant in variants_of(data)]


def named(run: tuple[str, str], world: str) -> str:
    """``kip279_unclean-simulation``; a variant beside the plain one is named too."""
    scenario, variant = run
    return "-".join([scenario, *([] if variant == "plain" else [variant]), world])


@pytest.mark.parametrize("run", runs(SIMULATION), ids=lambda run: named(run, SIMULATION))
def test_scenario(run: tuple[str, str]) -> None:
    assert play_simulated(load(*run))


@pytest.mark.slow
@pytest.mark.parametrize("run", runs(PROCESSES), ids=lambda run: named(run, PROCESSES))
def test_scenario_on_processes(run: tuple[str, str], tmp_path: Path) -> None:
    assert asyncio.run(play_on_processes(load(*run), str(tmp_path / "cluster")))


def test_leaders_copy_nothing_before_a_scenario_says_so() -> None:
    """kip405_2 kills A twice. A copy that A had begun of its own accord could end half-way, and be made again."""
    data = dict(source("kip405_2"))
    todo = data["steps"][0]["do"]
    begun, said = todo.index({"metadata_at": "C"}) + 1, todo.index({"tier": "A"})
    assert {"kill": "A"} in todo[begun:said]
    trace = {"trace": {"at": "C", "api": "PRODUCE", "topic": "__remote_log_metadata", "as": "announced"}}
    step = {"title": "until A is told to copy", "do": [*todo[:begun], trace, *todo[begun:said]]}
    assert play_simulated(script_of({**data, "steps": [{**step, "exchanges": {"announced": []}}]}))


def test_a_run_is_the_same_each_time() -> None:
    assert play_simulated(load("kip279_unclean")) == play_simulated(load("kip279_unclean"))
