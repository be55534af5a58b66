"""`milena chaos`: runs clients against a cluster while faults are injected, and checks the history of their
operations."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from milena.command_line.errors import UsageError, UserError, reason_of
from milena.command_line.files import check_writable
from milena.command_line.options import CommandLine, Option, names_in, port_number, seconds
from milena.lab.chaos.plan import in_rounds
from milena.lab.histories.faults import Kind

if TYPE_CHECKING:
    from milena.testing.chaos import Setting

KINDS = tuple(filter(in_rounds, Kind))
CHAOS = CommandLine(
    "chaos",
    "Start a cluster of a controller and three brokers, let clients write and read while faults are injected, and\n"
    "judge the history of their operations: no acknowledged record may be lost, reordered or duplicated, and each\n"
    "partition must accept writes as soon as enough replicas are available. The seed determines the faults; in the\n"
    "simulation it determines everything. The report folder gets history.jsonl, run.json, plan.txt, run.log,\n"
    "report.json, report.html and the nodes' logs. The exit code is 1 if a promise was\n"
    "broken, and 3 if nothing wrong was found but the machine stalled, so that the run could not be judged.",
    options=[
        Option(
            "--on",
            "where the cluster runs: processes of this machine, or simulation (virtual time)",
            "PLACE",
            default="processes",
        ),
        Option("--seed", "the seed of the faults", "N", default=1, convert=int),
        Option(
            "--seconds",
            "duration of the faults; starting and the final checks take longer",
            "S",
            default=60.0,
            convert=seconds,
        ),
        Option(
            "--faults",
            "only these kinds (stop and hang are SIGSTOP, restart is a clean shutdown), separated by commas: "
            f"{', '.join(kind.value for kind in KINDS)}",
            "KINDS",
        ),
        Option("--unsafe", "add unclean elections, and judge acks=1 as a promise: losses must then be found"),
        Option(
            "--deletions",
            "administrators also delete records, switch the tier and copying off and on, and make tiered topics",
        ),
        Option(
            "--transactions",
            "clients also work with transactions: independent ones, zombies, and groups that consume and produce",
        ),
        Option("--pace", "seconds between two records of a partition and a client library", "S", convert=seconds),
        Option(
            "--clients",
            "client libraries, separated by commas: milena, confluent-kafka, kafka-python, aiokafka, and milena-old "
            "(transactions of version 1); by default all that are installed",
            "NAMES",
        ),
        Option("--tier", "where the tier is: folder, or fsspec (as an object store is used)", "KIND", default="folder"),
        Option("--port", "the first broker's port; 0: free ports", "PORT", default=0, convert=port_number),
        Option("--history", "also write the history to FILE, one JSON object per line", "FILE"),
        Option("--html", "also write the page of the report to FILE", "FILE"),
        Option("--report", "an empty or new folder for the report; by default a temporary one", "FOLDER"),
    ],
    examples=[
        "milena chaos --seed 7 --seconds 120 --report chaos-7",
        "milena chaos --on simulation --seed 7",
        "milena chaos --faults kill,isolate,full-disk --clients milena",
        "milena chaos --unsafe",
        "milena chaos --on simulation --seed 7 --html seed-7.html",
    ],
)


def main(arguments: Sequence[str], setting: Setting | None = None) -> int:
    """Run the command and return the exit code. ``setting``: the environments and client libraries to choose from; None
    for those of the installed package. Raises UserError."""
    options = CHAOS.parse(arguments)
    if options.help:
        print(CHAOS.help())
        return 0
    # Imported here, because completion and --help import this module and need no cluster.
    from milena.lab.chaos.journal import HISTORY
    from milena.lab.chaos.reporting.report import PAGE
    from milena.lab.chaos.runner import Order
    from milena.testing.chaos import PROCESSES, SETTING, SIMULATION, Task, copy_from, pace_of, perform
    from milena.testing.chaos_processes import FOLDER, TIERS

    setting = SETTING if setting is None else setting
    if options.on not in setting.place_names:
        raise UsageError(f"--on {options.on}: must be one of {', '.join(setting.place_names)}")
    for name, value in (("--seconds", options.seconds), ("--pace", options.pace)):
        if value == 0:
            raise UsageError(f"{name} 0: must be more than 0 seconds")
    if options.on == SIMULATION and options.clients not in (None, "milena"):
        raise UsageError("--clients: the simulation has Milena's own client only")
    if options.tier not in TIERS or (options.tier != FOLDER and options.on != PROCESSES):
        raise UsageError(f"--tier {options.tier}: must be {' or '.join(TIERS)}; fsspec needs --on processes")
    names = None if options.clients is None else options.clients.split(",")
    for name in names or ():
        if name not in setting.library_names:
            raise UsageError(f"--clients: unknown library {name!r}; there are {', '.join(setting.library_names)}")
    pace = pace_of(options.on) if options.pace is None else options.pace
    order = Order(
        options.seed,
        options.seconds,
        _kinds(options.faults),
        options.unsafe,
        pace,
        deletions=options.deletions,
        transactions=options.transactions,
    )
    for file in (options.history, options.html):
        if file is not None:
            check_writable(file)
    report = _report_folder(options.report)
    task = Task(options.on, order, report, repetition_of(arguments, setting.program), names, options.port, options.tier)
    try:
        return perform(task, setting)
    finally:
        for name, file in ((HISTORY, options.history), (PAGE, options.html)):
            if file is not None:
                copy_from(report, name, Path(file))


def repetition_of(arguments: Sequence[str], program: Sequence[str]) -> str:
    """Return the command line that repeats a run, without --report, because the report's folder is not empty any
    more."""
    kept: list[str] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        if word == "--report":
            left[:1] = []
        elif not word.startswith("--report="):
            kept.append(word)
    return shlex.join([*program, *kept])


def _kinds(text: str | None) -> list[Kind] | None:
    if text is None:
        return None
    return names_in(text, {kind.value: kind for kind in KINDS}, "--faults", "fault")


def _report_folder(name: str | None) -> Path:
    if name is None:
        return Path(mkdtemp(prefix="chaos-"))
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UserError(f"{folder} is not empty: a report needs a folder of its own")
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {reason_of(error)}") from None
    return folder
