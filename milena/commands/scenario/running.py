"""Plays scenarios one after the other and prints how they went."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from typing import Final

from milena.command_line.errors import UserError
from milena.command_line.table import say
from milena.lab.scenarios.played import PlayedStep
from milena.lab.scenarios.script import SIMULATION, Script
from milena.lab.scenarios.simulated import play_simulated
from milena.lab.scenarios.stage import ScenarioFailed
from milena.lab.world.trace import quiet_logs

PASSED: Final = "passed"
FAILED: Final = "FAILED"
SKIPPED: Final = "skipped"


class Run:
    """The scenarios of one command. ``directory``: of the cluster of processes; a temporary one without it."""

    def __init__(self, world: str, *, seed: int, quiet: bool, directory: str | None) -> None:
        self._world = world
        self._seed = seed
        self._quiet = quiet
        self._directory = directory
        self._outcomes: list[str] = []
        self._steps = 0
        self._began = time.monotonic()
        quiet_logs()

    def play(self, name: str, script: Script) -> None:
        """Print each step as it has been played, then the outcome. Raises UserError if no cluster can be started."""
        if not self._quiet:
            say(f"{script.id}: {script.title}")
        began = time.monotonic()
        self._steps = 0
        try:
            self._play(script)
        except ScenarioFailed:
            outcome = FAILED
        else:
            outcome = PASSED
        self._outcomes.append(outcome)
        say(f"{name}: {outcome}, {self._steps} of {len(script.steps)} steps, {time.monotonic() - began:.1f} s")
        if not self._quiet:
            print()

    def _play(self, script: Script) -> None:
        if self._world == SIMULATION:
            play_simulated(script, seed=self._seed, watch=self._show)
            return
        from milena.testing.scenario_processes import play_on_processes

        if self._directory is not None:
            if os.path.exists(self._directory) and os.listdir(self._directory):
                raise UserError(f"--dir {self._directory}: not empty")
            asyncio.run(play_on_processes(script, self._directory, watch=self._show))
            return
        with tempfile.TemporaryDirectory(prefix="milena-scenario-") as folder:
            asyncio.run(play_on_processes(script, os.path.join(folder, "cluster"), watch=self._show))

    def _show(self, step: PlayedStep) -> None:
        if step.wrong is None:
            self._steps += 1
        if self._quiet and step.wrong is None:
            return
        say("")
        say(step.place)
        lines = step.compared().splitlines()
        lines += ["", *(f"as expected: {one}" for one in step.also)] if step.also and step.wrong is None else []
        lines += ["", *(f"wrong: {one}" for one in step.wrong.splitlines())] if step.wrong is not None else []
        for line in lines:
            say(f"  {line}".rstrip())
        sys.stdout.flush()

    def skip(self, name: str, reason: str) -> None:
        self._outcomes.append(SKIPPED)
        say(f"{name}: {SKIPPED}: {reason}")

    def end(self) -> int:
        """Print the totals if there was more than one scenario. Returns the exit code."""
        if len(self._outcomes) > 1:
            counts = {one: self._outcomes.count(one) for one in (PASSED, FAILED, SKIPPED)}
            seconds = f"{time.monotonic() - self._began:.1f} s"
            say(", ".join([*(f"{count} {outcome}" for outcome, count in counts.items() if count), seconds]))
        return 1 if FAILED in self._outcomes else 0
