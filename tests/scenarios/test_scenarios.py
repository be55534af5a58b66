"""Every scenario in every variant, in the simulated world."""

from __future__ import annotations

import pytest

from lab.scenarios.script import all_scenarios, load, variants
from lab.scenarios.simulated import play_simulated
from tests.scenarios.peers import PEERS

RUNS = [(scenario, variant) for scenario in all_scenarios() for variant in variants(scenario)]


def named(run: tuple[str, str], world: str) -> str:
    """``kip279_unclean-simulation``; a variant beside the plain one is named too."""
    scenario, variant = run
    return "-".join([scenario, *([] if variant == "plain" else [variant]), world])


@pytest.mark.parametrize("run", RUNS, ids=lambda run: named(run, "simulation"))
def test_scenario(run: tuple[str, str]) -> None:
    assert play_simulated(load(*run), PEERS)


def test_a_run_is_the_same_each_time() -> None:
    assert play_simulated(load("kip279_unclean"), PEERS) == play_simulated(load("kip279_unclean"), PEERS)
