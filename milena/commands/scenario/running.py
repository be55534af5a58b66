"""Runs scenarios one after the other and prints the results, as text or JSON."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from typing import Final

from milena.command_line.errors import UserError
from milena.command_line.files import write_text
from milena.command_line.table import say, show_json
from milena.commands.scenario.kept import KeptCluster
from milena.commands.scenario.pages import page_of_outcome, page_of_run
from milena.commands.scenario.showing import case_lines, results_table, series, step_lines
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


class Run:
    """The scenarios that one command runs. ``directory``: the directory of the cluster of processes; None for a
    temporary one. ``json``: print one document at the end. ``keep``: leave the cluster of processes running. ``html``:
    the file of the page."""

    def __init__(
        self,
        world: str,
        *,
        seed: int,
        quiet: bool,
        json: bool,
        directory: str | None,
        keep: bool = False,
        html: str | None = None,
    ) -> None:
        self._world = world
        self._seed = seed
        self._quiet = quiet
        self._json = json
        self._directory = directory
        self._keep = keep
        self._html = html
        self._kept: KeptCluster | None = None
        self._found: list[dict[str, object]] = []
        """An entry of the JSON document for each scenario."""
        self._passed = 0
        self._wrong: list[str] = []
        self._began = time.monotonic()
        quiet_logs()

    def play(self, name: str, scenario: Script | Comparison) -> None:
        """Print each step or case after it has run, then the result. Raises UserError if no cluster can be started."""
        if not self._quiet:
            self._say(f"{scenario.id}: {scenario.title}")
        began = time.monotonic()
        self._passed, self._wrong = 0, []
        more: dict[str, object] = {}
        if isinstance(scenario, Script):
            parts, of = len(scenario.steps), "steps"
            more = {"run": self._play(scenario).as_json()}
        else:
            parts, of = len(scenario.cases), "cases"
            more = self._compare(scenario)
        seconds = time.monotonic() - began
        outcome = FAILED if self._wrong else PASSED
        if self._kept is not None:
            more = self._kept.fields()
        self._found.append(
            {"scenario": name, "outcome": outcome.lower(), "seconds": round(seconds, 3), of: parts}
            | {"passed": self._passed, "wrong": self._wrong}
            | more
        )
        self._say(f"{name}: {outcome}, {self._passed} of {parts} {of}, {seconds:.1f} s")
        if not self._quiet:
            self._say("")
        for line in () if self._kept is None else self._kept.lines():
            self._say(line)

    def skip(self, name: str, reason: str) -> None:
        self._found.append({"scenario": name, "outcome": SKIPPED, "reason": reason})
        self._say(f"{name}: {SKIPPED}: {reason}")

    def end(self) -> int:
        """Print the totals if there was more than one scenario. Return the exit code."""
        outcomes = [one["outcome"] for one in self._found]
        if len(outcomes) > 1:
            counts = {one: outcomes.count(one.lower()) for one in (PASSED, FAILED, SKIPPED)}
            seconds = f"{time.monotonic() - self._began:.1f} s"
            self._say(", ".join([*(f"{count} {outcome}" for outcome, count in counts.items() if count), seconds]))
        if self._json:
            show_json(self._found)
        return 1 if FAILED.lower() in outcomes else 0

    def _play(self, script: Script) -> PlayedRun:
        run = PlayedRun(script, self._world)

        def watch(step: PlayedStep) -> None:
            run.steps.append(step)
            self._show(step)

        try:
            self._play_in_world(script, watch)
        except ScenarioFailed as error:
            run.error = None if run.wrong is not None else str(error)
            self._wrong = self._wrong or [str(error)]
        if not self._quiet:
            self._end_of(run)
        if self._html is not None:
            write_text(self._html, page_of_run(run))
        return run

    def _end_of(self, run: PlayedRun) -> None:
        """Print which leader epochs the document's are, and what a control experiment has shown."""
        lines = [line for line in (epochs_sentence(run.epochs), run.conclusion) if line]
        for line in ["", *lines] if lines else []:
            self._say(line)

    def _play_in_world(self, script: Script, watch: Watch) -> None:
        if self._world == SIMULATION:
            play_simulated(script, seed=self._seed, watch=watch)
            return
        from milena.testing.scenario_processes import play_on_processes

        directory = self._directory
        if directory is not None and os.path.exists(directory) and os.listdir(directory):
            raise UserError(f"--dir {directory}: not empty")
        if self._keep:
            directory = directory or tempfile.mkdtemp(prefix="milena-scenario-")
            self._kept = KeptCluster(directory, script)
        if directory is not None:
            asyncio.run(play_on_processes(script, directory, watch=watch, keep=self._keep))
            return
        with tempfile.TemporaryDirectory(prefix="milena-scenario-") as folder:
            asyncio.run(play_on_processes(script, os.path.join(folder, "cluster"), watch=watch))

    def _show(self, step: PlayedStep) -> None:
        if step.wrong is None:
            self._passed += 1
            if self._quiet:
                return
        else:
            self._wrong = [f"{step.place}: {one}" for one in step.wrong.splitlines()]
        for line in step_lines(step):
            self._say(line.rstrip())

    def _compare(self, comparison: Comparison) -> dict[str, object]:
        """Run the algorithms of a comparison. Return its entry in the JSON document."""
        outcome = compare(comparison, seed=self._seed)
        self._passed = sum(not one.wrong() for one in outcome.cases)
        self._wrong = outcome.wrong(comparison)
        if self._wrong or not self._quiet:
            self._show_outcome(comparison, outcome)
        if self._html is not None:
            write_text(self._html, page_of_outcome(comparison, outcome))
        cases = [
            {"case": one.case.name, "results": {name: result.fields() for name, result in one.results.items()}}
            for one in outcome.cases
        ]
        return {"results": cases, "longer": outcome.longer}

    def _show_outcome(self, comparison: Comparison, outcome: Outcome) -> None:
        lines = []
        for one in outcome.cases:
            lines += ["", *case_lines(one.case), "", *(f"  {line}" for line in results_table(one))]
        lines += ["", comparison.longer_title, ""]
        lines += [f"  {line}" for line in series(outcome.longer, comparison.longer)]
        lines += ["", *(f"  wrong: {one}" for one in self._wrong)] if self._wrong else [""]
        for line in lines:
            self._say(line.rstrip())

    def _say(self, line: str) -> None:
        if not self._json:
            say(line)
            sys.stdout.flush()
