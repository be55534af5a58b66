"""The suites of ``make test-all``: what each one runs, what it needs, and what ``--short`` leaves out.

``make test`` runs the tests in ``EVERYDAY`` that are not marked ``slow``. A test folder belongs to ``EVERYDAY`` or to
one of the suites here; ``tests/architecture/test_suites.py`` checks it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
EVERYDAY: Final = ("architecture", "contract", "foreign", "scenarios", "simulation", "unit", "wire")
"""Folders of ``tests/`` that ``make test`` runs."""
PYTEST: Final = "pytest"
PYTHON: Final = "python"
ENGINE: Final = ".cache/containers"
"""Where .ci/containers.py keeps a container engine that it had to start."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One row of the table that ends a run."""

    name: str
    about: str
    commands: tuple[tuple[str, ...], ...]
    """Run one after the other; the first word is ``pytest``, ``python`` or a program."""
    needs: tuple[str, ...] = ()
    """Programs without which the suite is skipped."""
    variables: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False
    """Whether it measures delays or judges progress in seconds, so that nothing may run beside it."""
    needs_build: bool = False
    """Whether it is skipped unless ``make compiled`` has built the compiled form."""
    built: bool = True
    """Whether it runs the compiled form where that was built."""
    folders: tuple[str, ...] = ()
    """The test folders that it runs."""


def seed_of(sample: str, what: str) -> int:
    """A number below 2**31 for this use of the sample, the same each time."""
    return int(sha256(f"{sample} {what}".encode()).hexdigest()[:7], 16)


def _page(name: str) -> tuple[str, str]:
    """The option for a page beside the logs of the suites."""
    return "--html", f".cache/test-all/{name}.html"


def suites(*, short: bool, sample: str) -> list[Suite]:
    """All suites, those that take longest first. ``sample``, such as a commit hash, selects what a short run takes."""

    def share(percent: int) -> tuple[str, ...]:
        return (f"--sample={sample}:{percent}",) if short else ()

    slow = "slow and not seeds and not kill" + (" and not wheel" if short else "")
    seconds, soak = ("60", "30") if short else ("600", "600")
    chaos = ("--seed", str(seed_of(sample, "chaos") % 1000 if short else 1), "--seconds", seconds)
    return [
        Suite(
            "oracle",
            "Kafka's tools, brokers and clients against Milena",
            ((PYTEST, "tests/oracle", *share(60)),),
            needs=("java", "mvn"),
            variables={
                "MILENA_RECORDS": "2000" if short else "100000",
                "MILENA_SEED": str(seed_of(sample, "sequences") if short else 1),
                "MILENA_SEQUENCES": "100" if short else "1000",
            },
            folders=("oracle",),
        ),
        Suite(
            "slow",
            "tests marked slow: scenarios on processes, wheels, upgrades, power loss, long waits",
            ((PYTEST, *(f"tests/{name}" for name in EVERYDAY), "-m", slow, *share(20)),),
            folders=EVERYDAY,
        ),
        Suite(
            "pipeline",
            "the Spark source, sink and jobs",
            (("make", "--no-print-directory", "spark"), (PYTEST, "tests/pipeline", *share(50))),
            needs=("java",),
            folders=("pipeline",),
        ),
        Suite(
            "browser",
            "pages of runs and the console in Chromium",
            ((PYTEST, "tests/browser"),),
            needs=("chromium",),
            folders=("browser",),
        ),
        Suite(
            "containers",
            "the image and the compose file",
            ((PYTHON, ".ci/containers.py", "run", ENGINE, PYTEST, "tests/containers", "-q", *share(50)),),
            needs=("nft", "debootstrap"),
            folders=("containers",),
        ),
        Suite(
            "seeds",
            "simulated clusters by seed",
            ((PYTEST, "tests/simulation", "-m", "seeds", "--dist", "load"),),
            variables={
                "MILENA_SEEDS": "40" if short else "400",
                "MILENA_STEPS": "5",
                "MILENA_FIRST_SEED": str(seed_of(sample, "seeds") if short else 0),
            },
        ),
        Suite(
            "compiled",
            "unit and contract tests on the compiled form, and seeds on both forms",
            (
                (PYTEST, "tests/unit", "tests/contract", "-m", "not slow", *share(25)),
                (PYTEST, "tests/simulation/test_both_forms.py"),
            ),
            needs_build=True,
            variables={"MILENA_SEEDS_OF_BOTH_FORMS": "8" if short else "50"},
        ),
        Suite(
            "mutants",
            "changes in the modules that decide; a test has to fail for each",
            ((PYTHON, "-m", "tests.mutants", *(("--sample", "2") if short else ())),),
            built=False,
        ),
        Suite(
            "soak",
            "random seeds of the simulated cluster for a given time",
            (
                (
                    PYTHON,
                    "-m",
                    "milena",
                    "sim",
                    "--soak",
                    soak,
                    "--seed",
                    str(seed_of(sample, "soak")),
                    *_page("failed-seed"),
                ),
            ),
        ),
        *([] if short else _long()),
        Suite(
            "chaos",
            "clients work while nodes are killed, cut off and wiped, with safe and with unsafe settings",
            (
                (PYTHON, "-m", "tests.chaos", "--on", "processes", *chaos, *_page("chaos")),
                (PYTHON, "-m", "tests.chaos", "--on", "processes", *chaos, "--unsafe", *_page("chaos-unsafe")),
                (PYTEST, "tests/wire", "-m", "kill"),
            ),
            variables={"MILENA_RECORDS": "5000" if short else "100000"},
            alone=True,
        ),
        Suite(
            "chaos-containers",
            "the same in containers, with safe settings",
            (
                (
                    *(PYTHON, ".ci/containers.py", "run", ENGINE, PYTHON, "-m", "tests.chaos", "--on", "containers"),
                    *(*chaos, *_page("chaos-containers")),
                ),
            ),
            needs=("nft", "debootstrap"),
            alone=True,
        ),
        Suite(
            "attack",
            "mutated frames, resource abuse, hostile peers",
            ((PYTHON, "-m", "tests.attack", "--seed", str(seed_of(sample, "attack"))),),
            variables={"SHORT": "1" if short else ""},
            alone=True,
        ),
    ]


def _long() -> list[Suite]:
    """Suites without a short form."""
    return [
        Suite(
            "explore",
            "property tests with random examples, forty times as many as in make test",
            ((PYTEST, "-m", "hypothesis", "--timeout=0", "tests/unit", "tests/contract"),),
            variables={"MILENA_EXPLORE": "20"},
        ),
        Suite(
            "powerloss",
            "a power failure before calls of each operation on each kind of file",
            ((PYTEST, "--timeout=0", "tests/simulation/test_power_matrix.py"),),
            variables={"MILENA_EXPLORE": "5"},
        ),
        Suite("endurance", "mixed load for an hour; memory and descriptors", ((PYTHON, "-m", "tests.endurance"),)),
    ]


def missing(suite: Suite) -> list[str]:
    """The programs that the suite needs and that this machine lacks."""
    return [program for program in suite.needs if shutil.which(program) is None]


def command_line(words: Sequence[str], workers: int) -> list[str]:
    """The command with this interpreter in place of ``pytest`` and ``python``. pytest lists what is slow or skipped."""
    match words[0]:
        case "pytest":
            xdist = ["-n", str(workers)] if workers > 1 and "--dist" in words else []
            order = f"--randomly-seed={os.environ.get('ORDER') or 1}"
            return [sys.executable, "-m", "pytest", "-q", "--durations=8", order, *xdist, *words[1:]]
        case "python":
            return [sys.executable, *words[1:]]
    return list(words)
