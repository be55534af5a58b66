"""Commands with subcommands, such as `milena topic create`: which one is meant, and the values of its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from milena.command_line.errors import UsageError
from milena.command_line.options import CommandLine, Values, nearest

Body = TypeVar("Body")


def chosen(
    name: str, commands: Mapping[str, tuple[CommandLine, Body]], arguments: Sequence[str]
) -> tuple[Body, Values] | None:
    """Return the body of `milena NAME COMMAND ...` and its values; None if help was requested, which is printed.

    Raises UsageError.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        width = max(map(len, commands)) + 2
        print(f"usage: milena {name} COMMAND [options]\n")
        print("\n".join(f"  {word:<{width}}{_first_sentence(line.about)}" for word, (line, _) in commands.items()))
        return None
    word, *rest = arguments
    if word not in commands:
        raise UsageError(f"no command `{name} {word}`{nearest(word, list(commands))}")
    line, body = commands[word]
    values = line.parse(rest)
    if values.help:
        print(line.help())
        return None
    return body, values


def _first_sentence(about: str) -> str:
    return " ".join(about.split()).partition(". ")[0].rstrip(".") + "."
