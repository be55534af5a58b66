"""Every scenario in every variant, in the simulation and on real processes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from milena.lab.scenarios.events import EventKind
from milena.lab.scenarios.heads import PROCESSES, SIMULATION, all_scenarios
from milena.lab.scenarios.played import PlayedStep
from milena.lab.scenarios.script import (
    is_comparison,
    load,
    script_of,
    source,
    variants_of,
    worlds_of,
)
from milena.lab.scenarios.simulated import play_simulated
from milena.lab.scenarios.tables import Mark, Row
from milena.testing.scenario_processes import play_on_processes
from tests.pipeline.played_scenarios import stand_after
from tests.wire.command import milena


def runs(world: str) -> list[tuple[str, str]]:
    """Scenario and variant of everything that can be played in this world."""
    found = [one for one in map(source, all_scenarios()) if world in worlds_of(one) and not is_comparison(one)]
    return [(data["id"], variant) for data in found for variant in variants_of(data)]


def named(run: tuple[str, str], world: str) -> str:
    """The test id, such as ``kip279_unclean-simulation``; it names a variant other than the plain one too."""
    scenario, variant = run
    return "-".join([scenario, *([] if variant == "plain" else [variant]), world])


@pytest.mark.parametrize("run", runs(SIMULATION), ids=lambda run: named(run, SIMULATION))
def test_scenario(run: tuple[str, str]) -> None:
    assert play_simulated(load(*run))


def compared_rows(steps: Sequence[PlayedStep]) -> list[list[tuple[str, list[Row]]]]:
    """The rows of each step's tables that the scenario checks. Others depend on how far a follower has come."""
    return [
        [(table.name, [row for row in table.rows if row.mark is not Mark.UNCHECKED]) for table in step.tables]
        for step in steps
    ]


@pytest.mark.slow
@pytest.mark.parametrize("run", runs(PROCESSES), ids=lambda run: named(run, PROCESSES))
def test_scenario_on_processes(run: tuple[str, str], tmp_path: Path) -> None:
    """It has the same tables as in simulation, if it runs there."""
    steps: list[PlayedStep] = []
    assert asyncio.run(play_on_processes(load(*run), str(tmp_path / "cluster"), watch=steps.append))
    if run in runs(SIMULATION):
        simulated: list[PlayedStep] = []
        play_simulated(load(*run), watch=simulated.append)
        assert compared_rows(steps) == compared_rows(simulated)


def test_leaders_copy_no_segment_before_a_scenario_tiers_one() -> None:
    """kip405_2 kills A twice. If A copied segments unasked, a kill could interrupt a copy, and A would repeat it."""
    data = dict(source("kip405_2"))
    todo = data["steps"][0]["do"]
    begun, said = todo.index({"metadata_at": "C"}) + 1, todo.index({"tier": "A"})
    assert {"kill": "A"} in todo[begun:said]
    trace = {"trace": {"at": "C", "api": "PRODUCE", "topic": "__remote_log_metadata", "as": "announced"}}
    step = {"title": "before A is asked to copy", "do": [*todo[:begun], trace, *todo[begun:said]]}
    assert play_simulated(script_of({**data, "steps": [{**step, "exchanges": {"announced": []}}]}))


def test_a_read_shows_the_offsets_of_a_segment_that_has_no_name() -> None:
    steps: list[PlayedStep] = []
    play_simulated(load("cleaner_unclean", "plain"), watch=steps.append)
    reads = [event.text for step in steps for event in step.events if event.kind is EventKind.READ]
    assert reads == ["2: c=1 (seg-0-4)", "4: a=3 (seg-0-4)", "5: e=1"]


def test_a_late_produce_is_shown_when_it_is_sent_and_when_it_is_answered() -> None:
    steps: list[PlayedStep] = []
    play_simulated(load("kip890_epoch_bump"), watch=steps.append)
    sent, answered = ([event.line for event in step.events] for step in steps)
    assert [line for line in sent if "produce by P" in line] == [
        "produce by P, to A, values [0], unanswered the late Produce"
    ]
    produced = [line for line in answered if "Produce msg" in line]
    assert produced == [
        "P -> A Produce msg 0, epoch 0: INVALID_PRODUCER_EPOCH",
        "P -> A Produce msg 1, epoch 1: offset 0",
    ]


def test_two_runs_of_a_scenario_have_the_same_result() -> None:
    assert play_simulated(load("kip279_unclean")) == play_simulated(load("kip279_unclean"))


@pytest.mark.parametrize("scenario", ["cleaner_fencing", "cleaner_table"])
def test_the_tier_of_cleanings_by_hand_has_no_findings(scenario: str, tmp_path: Path) -> None:
    script = load(scenario, "no_fences")
    state = stand_after(script, len(script.steps), tmp_path)
    assert state is not None
    said = milena("tier", "verify", "--tier", str(state.tier), "--dir", str(state.folder / "C"))
    assert "no findings" in said.out
