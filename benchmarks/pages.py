"""Pages of runs in headless Chromium: a scenario of 1,000 steps and a run of 10,000 lines, stepped through by key."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from benchmarks.console import LONGEST, WATCH, chromium
from benchmarks.peers import Peer
from benchmarks.sizes import Sizes
from benchmarks.turns import Rounds
from milena.lab.scenarios.heads import SIMULATION
from milena.lab.scenarios.played import PlayedRun
from milena.lab.scenarios.script import load
from milena.lab.scenarios.simulated import play_simulated
from milena.lab.world.trace import quiet_logs
from milena.report.contents import Story
from milena.report.embedded import embedded
from milena.report.page import page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCENARIO: Final = "kip405_5"
STEPS: Final = 1_000
LINES: Final = 10_000
PRESSED: Final = 200
"""Keys, one after the other without a pause."""


def pages(_peer: Peer, _sizes: Sizes) -> Rounds:
    """The longest task while a page is stepped through. Raises NotMeasured without a browser."""
    texts = {"pages_1000_steps_task_ms": _scenario(), "pages_10000_lines_task_ms": _run()}
    with TemporaryDirectory() as folder, chromium() as browser:
        for _ in range(3):
            yield {name: _longest(browser, Path(folder, "page.html"), text) for name, text in texts.items()}


def _longest(browser: Browser, file: Path, text: str) -> float:
    file.write_text(text, encoding="utf-8")
    opened = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    opened.add_init_script(WATCH)
    opened.goto(file.as_uri())
    opened.locator("[aria-selected=true]").first.wait_for()
    opened.evaluate(LONGEST)
    for _ in range(PRESSED):
        opened.keyboard.press("ArrowRight")
    opened.keyboard.press("End")
    opened.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")
    longest: float = opened.evaluate(LONGEST)
    opened.context.close()
    return longest


def _scenario() -> str:
    """A page of so many steps: those of a scenario, repeated."""
    quiet_logs()
    script = load(SCENARIO)
    run = PlayedRun(script, SIMULATION)
    play_simulated(script, watch=run.steps.append)
    data: dict[str, Any] = run.as_json()
    steps = data["steps"]
    data["steps"] = [{**steps[at % len(steps)], "number": at + 1} for at in range(STEPS)]
    return embedded(script.title, "scenario.js", {"scenario-run": data})


def _run() -> str:
    """A page of so many lines, with a change of a leader every tenth second."""
    seconds = LINES / 10
    states = [{"at": at / 10, "leader": at % 3 + 1, "epoch": at, "isr": [1, 2, 3]} for at in range(LINES)]
    story = {
        "seconds": seconds,
        "nodes": [{"id": node, "name": f"broker {node}"} for node in (1, 2, 3)],
        "brokers": [{"at": float(at), "node": at % 3 + 1, "fenced": at % 2 == 0} for at in range(0, int(seconds), 5)],
        "faults": [
            {"kind": "kill", "nodes": [at % 3 + 1], "begun": at, "mended": at + 4, "text": "", "effect": "seen"}
            for at in range(0, int(seconds), 10)
        ],
        "partitions": [{"name": f"t-{number}", "states": states[number::20]} for number in range(20)],
        "rates": {"begun": 0, "width": 1, "series": [{"name": "writes", "unit": "per second", "values": [100] * 1000}]},
        "violations": [],
        "trace": [[at / 10, f"line {at} of the trace", "log"] for at in range(LINES)],
    }
    return page("A run", "made", [Story(story)])
