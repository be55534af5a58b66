"""`milena scenario`: list, show and run scenarios, and comparisons of algorithms (``lab.scenarios.comparing``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from milena.command_line.errors import UsageError
from milena.command_line.options import CommandLine, Option, Positional, Values, chosen, nearest
from milena.command_line.table import say, show_json
from milena.lab.scenarios.heads import PROCESSES, SIMULATION, WORLDS, Head, all_heads

JSON = Option("--json", "print JSON")
LIST = CommandLine(
    "scenario list",
    "List the scenarios that come with Milena by the document that they are from, with their variants.",
    [JSON],
)
SHOW = CommandLine(
    "scenario show",
    "Show a scenario step by step, with the expected replicas.",
    [Option("--variant", "the variant (default: the first)", "NAME"), Option("--yaml", "the file as it is"), JSON],
    [Positional("SCENARIO", "an id of `milena scenario list`, or a file")],
    ["milena scenario show kip279_unclean", "milena scenario show kip279_unclean --yaml > mine.yaml"],
)
RUN = CommandLine(
    "scenario run",
    "Run scenarios and compare each step with the expected state. Every step prints the replicas, expected and actual\n"
    "side by side; a scenario that compares algorithms prints a table. The exit code is 1 if a scenario fails.",
    [
        Option("--on", f"{SIMULATION}: one process, virtual time; {PROCESSES}: a cluster of real ones", "WORLD"),
        Option("--variant", "the variant (default: the first)", "NAME"),
        Option("--all", "all scenarios in all variants"),
        Option("--quiet", "one line per scenario, and failed steps", short="-q"),
        Option("--seed", "of the simulation", "N", default=0, convert=int),
        JSON,
        Option("--html", "write a page to FILE that shows one run step by step; it needs no network", "FILE"),
        Option("--jobs", f"run this many scenarios at a time ({PROCESSES})", "N", default=1, convert=int),
        Option("--until", "stop after this step", "STEP", convert=int),
        Option("--keep", f"leave the cluster running ({PROCESSES}); `milena down --dir DIR` ends it"),
        Option("--dir", f"keep the cluster's files in this new directory ({PROCESSES})", "DIR"),
    ],
    [Positional("SCENARIO", "ids of `milena scenario list`, or files", many=True)],
    [
        "milena scenario run kip279_unclean",
        "milena scenario run kip279_unclean --on processes",
        "milena scenario run kip405_5 --on processes --until 6 --keep",
        "milena scenario run kip405_5 --html kip405_5.html",
        "milena scenario run mine.yaml",
        "milena scenario run --all --quiet",
        "milena scenario run --all --quiet --on processes --jobs 2",
        "milena scenario run kip279_alternatives --json",
    ],
)

COMPARE = CommandLine(
    "scenario compare",
    "Compare what a KIP proposes with what it replaces and rejects: a table with the numbers of one run of a scenario\n"
    "in each row. The exit code is 1 if a number is not the expected one.",
    [
        Option("--on", f"{SIMULATION}: one process, virtual time; {PROCESSES}: a cluster of real ones", "WORLD"),
        Option("--seed", "of the simulation", "N", default=0, convert=int),
        JSON,
        Option("--html", "also write the tables to FILE as a page; it needs no network", "FILE"),
    ],
    [Positional("TABLE", "kip279, kip405, kip903, kip1272 (default: all)", many=True)],
    ["milena scenario compare kip903", "milena scenario compare kip279 --json"],
)


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code. Raises UserError."""
    commands: dict[str, tuple[CommandLine, Callable[[Values], int]]] = {
        "list": (LIST, list_all),
        "show": (SHOW, _show),
        "run": (RUN, _run),
        "compare": (COMPARE, _compare),
    }
    meant = chosen("scenario", commands, arguments)
    if meant is None:
        return 0
    body, values = meant
    return body(values)


def list_all(values: Values) -> int:
    """Print a line for each scenario: its title, its variants, and where it cannot be run."""
    heads = all_heads()
    if values.json:
        show_json([head._asdict() | {"group": head.group} for head in heads])
        return 0
    width = max(len(head.id) for head in heads) + 2
    for number, (group, members) in enumerate(groupby(heads, key=lambda head: head.group)):
        for line in (*([""] if number else []), group, *(f"  {head.id:<{width}}{_about(head)}" for head in members)):
            say(line)
    return 0


def _about(head: Head) -> str:
    notes = [", ".join(head.variants)] if len(head.variants) > 1 else []
    notes += [f"in {' and '.join(head.worlds)} only"] if head.worlds != WORLDS else []
    return f"{head.title}  [{'; '.join(notes)}]" if notes else head.title


def _show(values: Values) -> int:
    from milena.commands.scenario.choice import show

    return show(values)


def _run(values: Values) -> int:
    """Check the options, and run the scenarios."""
    world = _world(values)
    if bool(values.scenario) == values.all:
        raise UsageError("milena scenario run needs scenarios, or --all; `milena scenario list` lists them")
    if values.all and values.variant is not None:
        raise UsageError("--all and --variant exclude each other")
    if values.seed < 0:
        raise UsageError(f"--seed {values.seed}: not a number of at least 0")
    if values.jobs < 1 or (values.jobs > 1 and world != PROCESSES):
        raise UsageError(f"--jobs {values.jobs}: a number of at least 1, and more than 1 only with --on {PROCESSES}")
    many = values.all or len(values.scenario) > 1
    for option, value in (("--until", values.until), ("--html", values.html)):
        if value is not None and many:
            raise UsageError(f"{option} is for one scenario")
    for option, is_set in (("--dir", values.dir is not None), ("--keep", values.keep)):
        if is_set and (many or world != PROCESSES):
            raise UsageError(f"{option} is for one scenario with --on {PROCESSES}")
    from milena.commands.scenario.choice import run

    return run(values, world)


def _compare(values: Values) -> int:
    world = _world(values)
    from milena.commands.scenario.compare import compare

    return compare(values, world)


def _world(values: Values) -> str:
    """Return the world in which to run; check it, and the seed. Raises UsageError."""
    world: str = values.on or SIMULATION
    if world not in WORLDS:
        raise UsageError(f"--on {world}: it is {' or '.join(WORLDS)}{nearest(world, WORLDS)}")
    if values.seed < 0:
        raise UsageError(f"--seed {values.seed}: not a number of at least 0")
    return world
