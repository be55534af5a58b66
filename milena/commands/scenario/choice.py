"""Which scenarios, variants and comparisons a command line means; shows them, or runs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from milena.command_line.errors import UserError, reason_of
from milena.command_line.files import check_writable
from milena.command_line.options import Values
from milena.command_line.table import say, show_json
from milena.lab.scenarios.comparing.cases import Comparison, comparison_of
from milena.lab.scenarios.heads import SUFFIX, all_scenarios
from milena.lab.scenarios.script import (
    Fields,
    Script,
    ScriptError,
    is_comparison,
    parse,
    reason_for,
    script_of,
    source,
    variants_of,
    worlds_of,
)
from milena.lab.scenarios.vocabulary import check

YAML: Final = (SUFFIX, ".yml")


class Chosen(NamedTuple):
    """A variant of a scenario, or a comparison, to run."""

    data: Fields
    played: Script | Comparison

    @property
    def name(self) -> str:
        if isinstance(self.played, Script) and len(variants_of(self.data)) > 1:
            return f"{self.played.id} ({self.played.variant})"
        return self.played.id

    def until(self, step: int) -> Chosen:
        """Return the scenario with its first steps up to ``step``. Raises ScriptError."""
        if not isinstance(self.played, Script):
            raise ScriptError(f"{self.played.id} compares algorithms and has no steps")
        last = len(self.played.steps)
        if not 1 <= step <= last:
            raise ScriptError(f"--until {step}: {self.name} has the steps 1 to {last}")
        return self._replace(played=replace(self.played, steps=self.played.steps[:step]))


@contextmanager
def _reported() -> Iterator[None]:
    """Report an invalid scenario as a user's error."""
    try:
        yield
    except ScriptError as error:
        raise UserError(str(error)) from None


@_reported()
def show(values: Values) -> int:
    data = read(values.scenario)
    if values.yaml:
        print(text_of(values.scenario), end="")
        return 0
    chosen = choice(data, values.variant)
    if values.json:
        show_json(data)
        return 0
    from milena.commands.scenario.showing import described, described_comparison

    played = chosen.played
    for line in described(data, played) if isinstance(played, Script) else described_comparison(data, played):
        say(line)
    return 0


@_reported()
def run(values: Values, world: str) -> int:
    """Run the requested scenarios. With --all, those that cannot run in this world are skipped, with the reason."""
    from milena.commands.scenario.running import Planned, RunOptions, run_all

    chosen = everything() if values.all else [choice(read(one), values.variant) for one in values.scenario]
    if values.until is not None:
        chosen = [one.until(values.until) for one in chosen]
    if values.html is not None:
        check_writable(values.html)
    planned = [Planned(one.name, one.played, not_playable(one, world)) for one in chosen]
    for one in planned:
        if one.reason is not None and not values.all:
            raise UserError(f"{one.name}: {one.reason}")
    return run_all(
        planned,
        RunOptions(
            world=world,
            seed=values.seed,
            quiet=values.quiet,
            json=values.json,
            directory=values.dir,
            keep=values.keep,
            html=values.html,
            jobs=values.jobs,
        ),
    )


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
        return resources.files("milena.lab.scenarios").joinpath(id_of(word) + SUFFIX).read_text()
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
