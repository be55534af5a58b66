"""Scenarios in simulation: at once, or step by step. A run is a process of its own; it takes seconds of CPU."""

from __future__ import annotations

import json
import secrets
import sys
from collections import OrderedDict
from subprocess import DEVNULL, PIPE
from typing import Annotated, Any, Final

import anyio
from fastapi import APIRouter, HTTPException, Path, Request
from pydantic import Field

from milena.console.context import Strict, not_found
from milena.lab.scenarios.heads import SIMULATION, all_heads

router = APIRouter(tags=["scenarios"])

MILENA: Final = (sys.executable, "-P", "-m", "milena", "scenario")
NAME: Final = r"^[A-Za-z0-9_]+$"
RUN_SECONDS: Final = 120.0
MOST_RUNS: Final = 20
"""Runs in memory; a new one replaces the oldest."""
ONE_AT_A_TIME: Final = anyio.CapacityLimiter(1)


class NewRun(Strict):
    """How to run a scenario."""

    variant: str | None = Field(default=None, pattern=NAME, description="the document's without it")
    step: bool = Field(default=False, description="whether the steps are returned one by one")
    seed: int = Field(default=0, ge=0, lt=1 << 64)


class Runs:
    """The runs whose steps are returned one by one."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._done: dict[str, int] = {}

    def add(self, run: dict[str, Any]) -> str:
        """Keep a run, and return its name."""
        name = secrets.token_urlsafe(6)
        self._runs[name], self._done[name] = run, 0
        while len(self._runs) > MOST_RUNS:
            self.remove(next(iter(self._runs)))
        return name

    def get(self, name: str) -> tuple[dict[str, Any], int]:
        """Return a run and the number of steps returned so far. Raises HTTPException 404."""
        if name not in self._runs:
            raise not_found(f"no run {name!r}; begin one with POST /api/scenarios/NAME/runs")
        return self._runs[name], self._done[name]

    def advance(self, name: str) -> int:
        """Count one more step, and return its index. Raises HTTPException 409 after the last one."""
        run, done = self.get(name)
        if done >= len(run["steps"]):
            raise HTTPException(409, f"run {name} has no further step")
        self._done[name] += 1
        return done

    def remove(self, name: str) -> None:
        self.get(name)
        del self._runs[name], self._done[name]


def runs_of(request: Request) -> Runs:
    """The runs of this server."""
    state = request.app.state
    if not hasattr(state, "runs"):
        state.runs = Runs()
    runs: Runs = state.runs
    return runs


async def scenario_output(*arguments: str) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON that a command of `milena scenario` prints. Raises HTTPException with its error."""
    async with ONE_AT_A_TIME:
        with anyio.move_on_after(RUN_SECONDS) as scope:
            done = await anyio.run_process([*MILENA, *arguments], stdin=DEVNULL, stdout=PIPE, stderr=PIPE, check=False)
    if scope.cancelled_caught:
        raise HTTPException(503, f"the run did not end within {RUN_SECONDS:g} s")
    try:
        return json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise HTTPException(400, lines[-1].removeprefix("milena: ") if lines else "the run failed") from None


@router.get("/api/scenarios")
async def scenarios() -> list[dict[str, Any]]:
    """The scenarios that run in simulation, with their variants."""
    found = [head._asdict() | {"name": head.id, "group": head.group} for head in all_heads()]
    return [one for one in found if SIMULATION in one["worlds"]]


@router.post("/api/scenarios/{name}/runs")
async def run_scenario(request: Request, name: Annotated[str, Path(pattern=NAME)], wanted: NewRun) -> dict[str, Any]:
    """Run a scenario in simulation. Return the whole run, or with `step` its name: `/next` returns its steps."""
    known = [one["name"] for one in await scenarios()]
    if name not in known:
        raise not_found(f"no scenario {name!r}; there are {', '.join(known)}")
    variant = ["--variant", wanted.variant] if wanted.variant else []
    played = await scenario_output("run", name, "--json", "--seed", str(wanted.seed), *variant)
    run: dict[str, Any] | None = played[0].get("run")
    if run is None:
        raise HTTPException(400, f"{name} compares algorithms and has no steps; `milena scenario run {name}` shows it")
    if not wanted.step:
        return run
    return {"ok": {"run": runs_of(request).add(run), "steps": len(run["steps"]), "done": 0}}


@router.post("/api/runs/{run}/next")
async def next_step(request: Request, run: str) -> dict[str, Any]:
    """Return the next step of a run."""
    runs = runs_of(request)
    index = runs.advance(run)
    steps = runs.get(run)[0]["steps"]
    return {"step": steps[index], "done": index + 1, "finished": index + 1 == len(steps)}


@router.get("/api/runs/{run}")
async def run_so_far(request: Request, run: str) -> dict[str, Any]:
    """The run with the steps returned so far."""
    whole, done = runs_of(request).get(run)
    return {**whole, "steps": whole["steps"][:done]}


@router.delete("/api/runs/{run}")
async def forget_run(request: Request, run: str) -> dict[str, Any]:
    """Forget a run."""
    runs_of(request).remove(run)
    return {"ok": {}}
