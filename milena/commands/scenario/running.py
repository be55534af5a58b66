"""Runs scenarios and prints the results, as text or JSON."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeAlias

from milena.command_line.errors import UserError
from milena.command_line.files import write_text
from milena.command_line.table import say, show_json
from milena.commands.scenario.kept import KeptCluster
from milena.commands.scenario.pages import page_of_outcome, page_of_run
from milena.commands.scenario.showing import WIDTH, case_lines, noted, results_table, series, step_lines
from milena.lab.scenarios.comparing.cases import Comparison
from milena.lab.scenarios.comparing.runs import Outcome, compare
from milena.lab.scenarios.heads import SIMULATION
from milena.lab.scenarios.played import PlayedRun, PlayedStep, Watch, epochs_sentence
from milena.lab.scenarios.script import Script
from milena.lab.scenarios.simulated import play_simulated
from milena.lab.scenarios.stage import ScenarioFailed
from milena.lab.world.trace import quiet_logs

PASSED: Final = "passed"
FAILED: Final = "FAILED"
SKIPPED: Final = "skipped"


Say: TypeAlias = Callable[[str], None]
"""Prints a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How scenarios are run and shown."""

    world: str
    seed: int = 0
    quiet: bool = False
    json: bool = False
    """Print one document at the end."""
    directory: str | None = None
    """The directory of the cluster of processes; None for a temporary one."""
    keep: bool = False
    """Leave the cluster of processes running."""
    html: str | None = None
    """The file of the page."""
    jobs: int = 1
    """The number of scenarios that run at a time."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A scenario to run. ``reason``: why it is skipped."""

    name: str
    scenario: Script | Comparison
    reason: str | None = None


def run_all(planned: Sequence[Planned], options: RunOptions) -> int:
    """Run the scenarios, and print each result in this order. Return the exit code. Raises UserError if no cluster can
    be started."""
    quiet_logs()
    began = time.monotonic()
    if options.jobs > 1:
        with ThreadPoolExecutor(options.jobs, "scenario") as pool:
            found = []
            for lines, entry in pool.map(lambda one: _buffered(one, options), planned):
                for line in lines:
                    _print(line, options)
                found.append(entry)
    else:
        found = [_one(one, options, lambda line: _print(line, options)) for one in planned]
    outcomes = [one["outcome"] for one in found]
    if len(outcomes) > 1:
        counts = {one: outcomes.count(one.lower()) for one in (PASSED, FAILED, SKIPPED)}
        seconds = f"{time.monotonic() - began:.1f} s"
        _print(", ".join([*(f"{count} {outcome}" for outcome, count in counts.items() if count), seconds]), options)
    if options.json:
        show_json(found)
    return 1 if FAILED.lower() in outcomes else 0


def _buffered(planned: Planned, options: RunOptions) -> tuple[list[str], dict[str, object]]:
    lines: list[str] = []
    return lines, _one(planned, options, lines.append)


def _one(planned: Planned, options: RunOptions, write: Say) -> dict[str, object]:
    """Run one scenario. Return its entry in the JSON document."""
    if planned.reason is not None:
        write(f"{planned.name}: {SKIPPED}: {planned.reason}")
        return {"scenario": planned.name, "outcome": SKIPPED, "reason": planned.reason}
    return ScenarioRun(planned.name, planned.scenario, options, write).run()


def _print(line: str, options: RunOptions) -> None:
    if not options.json:
        say(line)
        sys.stdout.flush()


class ScenarioRun:
    """The run of one scenario. Each step, or case, is printed after it has run."""

    def __init__(self, name: str, scenario: Script | Comparison, options: RunOptions, write: Say) -> None:
        self._name = name
        self._scenario = scenario
        self._options = options
        self._say = write
        self._kept: KeptCluster | None = None
        self._passed = 0
        self._wrong: list[str] = []

    def run(self) -> dict[str, object]:
        """Run the scenario. Return its entry in the JSON document. Raises UserError if no cluster can be started."""
        scenario, quiet = self._scenario, self._options.quiet
        if not quiet:
            self._say(f"{scenario.id}: {scenario.title}")
            for line in () if isinstance(scenario, Comparison) else textwrap.wrap(scenario.note, WIDTH):
                self._say(line)
        began = time.monotonic()
        if isinstance(scenario, Script):
            parts, of = len(scenario.steps), "steps"
            more: dict[str, object] = {"run": self._play(scenario).as_json()}
        else:
            parts, of = len(scenario.cases), "cases"
            more = self._compare(scenario)
        seconds = time.monotonic() - began
        outcome = FAILED if self._wrong else PASSED
        self._say(f"{self._name}: {outcome}, {self._passed} of {parts} {of}, {seconds:.1f} s")
        if not quiet:
            self._say("")
        if self._kept is not None:
            more |= self._kept.fields()
            for line in self._kept.lines():
                self._say(line)
        return (
            {"scenario": self._name, "outcome": outcome.lower(), "seconds": round(seconds, 3), of: parts}
            | {"passed": self._passed, "wrong": self._wrong}
            | more
        )

    def _play(self, script: Script) -> PlayedRun:
        run = PlayedRun(script, self._options.world)

        def watch(step: PlayedStep) -> None:
            run.steps.append(step)
            self._show(step)

        try:
            self._play_in_world(script, watch)
        except ScenarioFailed as error:
            run.error = None if run.wrong is not None else str(error)
            self._wrong = self._wrong or [str(error)]
        if not self._options.quiet:
            self._end_of(run)
        if self._options.html is not None:
            write_text(self._options.html, page_of_run(run))
        return run

    def _end_of(self, run: PlayedRun) -> None:
        """Print which leader epochs the document's are, and what a control experiment has shown."""
        lines = [line for line in (epochs_sentence(run.epochs), run.conclusion) if line]
        for line in ["", *lines] if lines else []:
            self._say(line)

    def _play_in_world(self, script: Script, watch: Watch) -> None:
        if self._options.world == SIMULATION:
            play_simulated(script, seed=self._options.seed, watch=watch)
            return
        from milena.testing.scenario_processes import play_on_processes

        directory = self._options.directory
        if directory is not None and os.path.exists(directory) and os.listdir(directory):
            raise UserError(f"--dir {directory}: not empty")
        if self._options.keep:
            directory = directory or tempfile.mkdtemp(prefix="milena-scenario-")
            self._kept = KeptCluster(directory, script)
        if directory is not None:
            asyncio.run(play_on_processes(script, directory, watch=watch, keep=self._options.keep))
            return
        with tempfile.TemporaryDirectory(prefix="milena-scenario-") as folder:
            asyncio.run(play_on_processes(script, os.path.join(folder, "cluster"), watch=watch))

    def _show(self, step: PlayedStep) -> None:
        if step.wrong is None:
            self._passed += 1
            if self._options.quiet:
                return
        else:
            self._wrong = [f"{step.place}: {one}" for one in step.wrong.splitlines()]
        for line in step_lines(step):
            self._say(line.rstrip())

    def _compare(self, comparison: Comparison) -> dict[str, object]:
        """Run the algorithms of a comparison. Return its entry in the JSON document."""
        outcome = compare(comparison, seed=self._options.seed)
        self._passed = sum(not one.wrong() for one in outcome.cases)
        self._wrong = outcome.wrong(comparison)
        if self._wrong or not self._options.quiet:
            self._show_outcome(comparison, outcome)
        if self._options.html is not None:
            write_text(self._options.html, page_of_outcome(comparison, outcome))
        cases = [
            {"case": one.case.name, "results": {name: result.fields() for name, result in one.results.items()}}
            for one in outcome.cases
        ]
        return {"note": comparison.note, "results": cases, "longer": outcome.longer}

    def _show_outcome(self, comparison: Comparison, outcome: Outcome) -> None:
        lines = noted(comparison)
        for one in outcome.cases:
            lines += ["", *case_lines(one.case), "", *(f"  {line}" for line in results_table(one))]
        lines += ["", comparison.longer_title, ""]
        lines += [f"  {line}" for line in series(outcome.longer, comparison.longer)]
        lines += ["", *(f"  wrong: {one}" for one in self._wrong)] if self._wrong else [""]
        for line in lines:
            self._say(line.rstrip())
