"""`milena scenario`: list, show and run scenarios, and comparisons of algorithms (``lab.scenarios.comparing``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from milena.command_line.errors import UsageError, UserError, reason_of
from milena.command_line.options import CommandLine, Option, Positional, Values, chosen, nearest
from milena.command_line.table import say, show_json
from milena.commands.client import JSON
from milena.commands.scenario.showing import described, described_comparison
from milena.lab.scenarios.comparing.cases import Comparison, comparison_of
from milena.lab.scenarios.script import (
    PROCESSES,
    SIMULATION,
    WORLDS,
    Fields,
    Script,
    ScriptError,
    all_scenarios,
    is_comparison,
    parse,
    reason_for,
    script_of,
    source,
    variants_of,
    worlds_of,
)
from milena.lab.scenarios.vocabulary import check

LIST = CommandLine("scenario list", "List the scenarios that come with Milena, with their variants.")
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
        Option("--dir", f"keep the cluster's files in this new directory ({PROCESSES})", "DIR"),
    ],
    [Positional("SCENARIO", "ids of `milena scenario list`, or files", many=True)],
    [
        "milena scenario run kip279_unclean",
        "milena scenario run kip279_unclean --on processes",
        "milena scenario run mine.yaml",
        "milena scenario run --all --quiet",
        "milena scenario run kip279_alternatives --json",
    ],
)
YAML: Final = (".yaml", ".yml")


class Chosen(NamedTuple):
    """A variant of a scenario, or a comparison, to run."""

    data: Fields
    played: Script | Comparison

    @property
    def name(self) -> str:
        if isinstance(self.played, Script) and len(variants_of(self.data)) > 1:
            return f"{self.played.id} ({self.played.variant})"
        return self.played.id


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code. Raises UserError."""
    commands: dict[str, tuple[CommandLine, Callable[[Values], int]]] = {
        "list": (LIST, list_all),
        "show": (SHOW, show),
        "run": (RUN, run),
    }
    meant = chosen("scenario", commands, arguments)
    if meant is None:
        return 0
    body, values = meant
    try:
        return body(values)
    except ScriptError as error:
        raise UserError(str(error)) from None


def list_all(values: Values) -> int:
    """Print a line for each scenario: its variants, and where it cannot be run."""
    known = all_scenarios()
    width = max(map(len, known)) + 2
    for scenario in known:
        data = source(scenario)
        notes = [", ".join(names)] if len(names := variants_of(data)) > 1 else []
        notes += [f"in {' and '.join(worlds)} only"] if (worlds := worlds_of(data)) != list(WORLDS) else []
        say(f"{scenario:<{width}}{data['title']}{'  [' + '; '.join(notes) + ']' if notes else ''}")
    return 0


def show(values: Values) -> int:
    data = read(values.scenario)
    if values.yaml:
        print(text_of(values.scenario), end="")
        return 0
    chosen = choice(data, values.variant)
    if values.json:
        show_json(data)
        return 0
    played = chosen.played
    for line in described(data, played) if isinstance(played, Script) else described_comparison(data, played):
        say(line)
    return 0


def run(values: Values) -> int:
    """Run the requested scenarios. With --all, those that cannot run in this world are skipped, with the reason."""
    from milena.commands.scenario.running import Run

    world = values.on or SIMULATION
    if world not in WORLDS:
        raise UsageError(f"--on {world}: it is {' or '.join(WORLDS)}{nearest(world, WORLDS)}")
    if bool(values.scenario) == values.all:
        raise UsageError("milena scenario run needs scenarios, or --all; `milena scenario list` lists them")
    if values.all and values.variant is not None:
        raise UsageError("--all and --variant exclude each other")
    if values.seed < 0:
        raise UsageError(f"--seed {values.seed}: not a number of at least 0")
    if values.dir is not None and (world != PROCESSES or values.all or len(values.scenario) > 1):
        raise UsageError(f"--dir is for one scenario with --on {PROCESSES}")
    chosen = everything() if values.all else [choice(read(one), values.variant) for one in values.scenario]
    playing = Run(world, seed=values.seed, quiet=values.quiet, json=values.json, directory=values.dir)
    for one in chosen:
        reason = not_playable(one, world)
        if reason is None:
            playing.play(one.name, one.played)
        elif values.all:
            playing.skip(one.name, reason)
        else:
            raise UserError(f"{one.name}: {reason}")
    return playing.end()


def not_playable(chosen: Chosen, world: str) -> str | None:
    """Return why a scenario cannot run here, or None."""
    if world not in (worlds := worlds_of(chosen.data)):
        return f"only with --on {' or '.join(worlds)}: {reason_for(chosen.data)}"
    return None


def everything() -> list[Chosen]:
    """Return each variant of each shipped scenario."""
    found = [source(scenario) for scenario in all_scenarios()]
    return [choice(data, None if is_comparison(data) else name) for data in found for name in variants_of(data)]


def choice(data: Fields, variant: str | None) -> Chosen:
    """Return the variant or comparison to run. Raises ScriptError."""
    if is_comparison(data):
        if variant is not None:
            raise ScriptError(f"{data['id']} compares algorithms and has no variants")
        return Chosen(data, comparison_of(data))
    script = script_of(data, variant)
    check(script)
    return Chosen(data, script)


def read(word: str) -> Fields:
    """Return a scenario by its id (``-`` counts as ``_``), or from a file. Raises ScriptError, UserError."""
    return parse(text_of(word), word) if is_file(word) else source(id_of(word))


def text_of(word: str) -> str:
    """Return the YAML of a scenario. Raises ScriptError, UserError."""
    if not is_file(word):
        from importlib import resources

        source(id_of(word))
        return resources.files("milena.lab.scenarios").joinpath(f"{id_of(word)}.yaml").read_text()
    try:
        return Path(word).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(reason_of(error)) from None
    except UnicodeDecodeError:
        raise UserError(f"{word}: not a text file in UTF-8") from None


def id_of(word: str) -> str:
    return word.replace("-", "_")


def is_file(word: str) -> bool:
    return word.endswith(YAML) or "/" in word
