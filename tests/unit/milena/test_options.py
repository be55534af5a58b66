"""Parsing of command lines by a declarative description."""

from __future__ import annotations

import pytest

from milena.command_line.errors import UsageError
from milena.command_line.options import CommandLine, Option, Positional, key_value, nearest

COMMAND = CommandLine(
    "demo",
    "Does nothing.",
    options=[
        Option("--count", "how many", "N", default=3, convert=int),
        Option("--set", "a pair", "K=V", many=True, convert=key_value),
        Option("--quiet", "say nothing", short="-q"),
    ],
    positionals=[Positional("NAME", "a name"), Positional("REST", "the rest", many=True)],
    examples=["milena demo x"],
)


def test_options_are_parsed_in_both_spellings_and_at_any_position() -> None:
    values = COMMAND.parse(["a", "--count=5", "b", "--set", "k=v", "-q", "--set=x=y=z", "--", "--c"])
    assert (values.count, values.quiet, values.name, values.rest) == (5, True, "a", ["b", "--c"])
    assert values.set == [("k", "v"), ("x", "y=z")]
    assert values.given == {"count", "quiet", "set"}


def test_omitted_options_have_their_defaults() -> None:
    values = COMMAND.parse(["a"])
    assert (values.count, values.quiet, values.set, values.rest, values.given) == (3, False, [], [], frozenset())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a", "--cuont", "1"], r"unknown option --cuont \(did you mean --count\?\); `milena demo --help` lists them"),
        (["a", "--count"], "--count needs a value: --count N"),
        (["a", "--count", "many"], "--count many: not a whole number"),
        (["a", "--set", "k"], "--set k: write it as key=value"),
        (["a", "--quiet=yes"], "--quiet takes no value"),
        ([], "milena demo needs NAME: a name"),
    ],
)
def test_a_mistake_is_reported_in_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        COMMAND.parse(arguments)


def test_a_command_without_positionals_refuses_arguments() -> None:
    with pytest.raises(UsageError, match="milena bare does not take 'x'"):
        CommandLine("bare", "Nothing.").parse(["x"])


def test_help_takes_precedence_over_mistakes_and_lists_all_options() -> None:
    assert COMMAND.parse(["--help", "--wrong"]).help
    text = COMMAND.help()
    for part in (
        "usage: milena demo [options] NAME [REST...]",
        "--count N",
        "(default: 3)",
        "-q, --quiet",
        "milena demo x",
    ):
        assert part in text


def test_a_name_far_from_all_others_gets_no_suggestion() -> None:
    assert nearest("zzz", ["create", "list"]) == ""
