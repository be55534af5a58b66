"""Seeds of tests: a failed one keeps its page in ``.cache/pages``, where CI and people find it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from milena.lab.chaos.journal import Recording
from milena.lab.chaos.simulated.pages import page_of_seed
from milena.lab.chaos.simulated.seeds import Report, run_seed

PAGES: Final = Path(__file__).parents[2] / ".cache" / "pages"


def run_kept(seed: int, steps: int, folder: Path = PAGES, **options: Any) -> Report:
    """Run a seed. If it fails, write its page and note that in the error, or in its violations. Raises what the run
    raises."""
    recording, trace = Recording(), list[str]()
    page = folder / f"seed-{seed}-{steps}.html"

    def keep(outcome: Report | Exception) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        command = f"milena sim --seed {seed} --steps {steps}"
        page.write_text(page_of_seed(command, recording, trace, outcome), encoding="utf-8")

    try:
        report = run_seed(seed, steps=steps, listener=trace.append, recording=recording, **options)
    except Exception as error:
        keep(error)
        error.add_note(f"its page: {page}")
        raise
    if report.violations:
        keep(report)
        report.violations.insert(0, f"its page: {page}")
    return report
