"""Command lines as data: options, positional arguments, help.

argparse costs 10 ms to import, a tenth of what a node has to be listening; this reader needs no import.
Options are ``--name VALUE``, ``--name=VALUE`` or a bare ``--name`` for flags; ``-x`` for the few with a short form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from milena.command_line.errors import UsageError

TYPE_CHECKING = False  # typing, collections.abc and dataclasses cost 15 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


_NO_NUMBER: dict[object, str] = {int: "not a whole number", float: "not a number"}


class Option:
    """One option. Without ``value`` it is a flag; with ``many`` it may come again and collects a list. With ``bare``
    it takes a value only as ``--name=VALUE``; ``--name`` alone has the value ``bare``."""

    def __init__(
        self,
        name: str,
        help: str,
        value: str = "",
        *,
        default: object = None,
        many: bool = False,
        convert: Callable[[str], object] = str,
        short: str = "",
        bare: object = None,
    ) -> None:
        self.name = name
        self.help = help
        self.value = value
        self.default = default
        self.many = many
        self.convert = convert
        self.short = short
        self.bare = bare
        self.key = name.lstrip("-").replace("-", "_")


class Positional:
    """One argument by position. ``many`` takes all remaining ones."""

    def __init__(self, name: str, help: str, *, optional: bool = False, many: bool = False) -> None:
        self.name = name
        self.help = help
        self.optional = optional
        self.many = many
        self.key = name.lower().replace("-", "_")


class CommandLine:
    """The arguments of a command. ``usage``: the command's name as typed; ``about``: its description."""

    def __init__(
        self,
        usage: str,
        about: str,
        options: Sequence[Option] = (),
        positionals: Sequence[Positional] = (),
        examples: Sequence[str] = (),
    ) -> None:
        self.usage = usage
        self.about = about
        self.options = options
        self.positionals = positionals
        self.examples = examples

    def parse(self, arguments: Sequence[str]) -> Values:
        """Parse the arguments. Raises UsageError; ``Values.help`` is set if ``--help`` was among them."""
        values: dict[str, object] = {
            o.key: [] if o.many else (False if not o.value else o.default) for o in self.options
        }
        given: set[str] = set()
        places: list[str] = []
        rest = list(arguments)
        while rest:
            word = rest.pop(0)
            if word in ("-h", "--help"):
                return Values({"help": True}, frozenset())
            if word == "--":
                places += rest
                break
            if word.startswith("-") and word != "-":
                option = self._read_option(word, rest, values)
                given.add(option.key)
            else:
                places.append(word)
        self._place(places, values)
        return Values({"help": False, **values}, frozenset(given))

    def _read_option(self, word: str, rest: list[str], values: dict[str, object]) -> Option:
        name, equals, text = word.partition("=")
        option = self._find(name)
        if not option.value:
            if equals:
                raise UsageError(f"{name} takes no value")
            values[option.key] = True
            return option
        if not equals and option.bare is not None:
            values[option.key] = option.bare
            return option
        if not equals:
            if not rest:
                raise UsageError(f"{name} needs a value: {name} {option.value}")
            text = rest.pop(0)
        try:
            value = option.convert(text)
        except ValueError as error:
            raise UsageError(f"{name} {text}: {_NO_NUMBER.get(option.convert, error)}") from None
        if option.many:
            several = values[option.key]
            assert isinstance(several, list)
            several.append(value)
        else:
            values[option.key] = value
        return option

    def _find(self, name: str) -> Option:
        for option in self.options:
            if name in (option.name, option.short):
                return option
        raise UsageError(
            f"unknown option {name}{nearest(name, [option.name for option in self.options])}; "
            f"`milena {self.usage} --help` lists them"
        )

    def _place(self, places: list[str], values: dict[str, object]) -> None:
        for positional in self.positionals:
            if positional.many:
                values[positional.key] = places
                places = []
            elif places:
                values[positional.key] = places.pop(0)
            elif positional.optional:
                values[positional.key] = None
            else:
                raise UsageError(f"milena {self.usage} needs {positional.name}: {positional.help}")
        if places:
            raise UsageError(
                f"milena {self.usage} does not take {places[0]!r}; `milena {self.usage} --help` lists what it does take"
            )

    def help(self) -> str:
        """Return the text of ``--help``."""
        places = "".join(
            f" [{p.name}{'...' if p.many else ''}]" if p.optional or p.many else f" {p.name}" for p in self.positionals
        )
        lines = [f"usage: milena {self.usage}{' [options]' if self.options else ''}{places}", "", self.about]
        rows = [(p.name, p.help) for p in self.positionals] + [(_spelling(o), _described(o)) for o in self.options]
        if rows:
            width = max(len(left) for left, _ in rows) + 2
            lines += ["", *(f"  {left:<{width}}{right}" for left, right in rows)]
        if self.examples:
            lines += ["", "Examples:", *(f"  {example}" for example in self.examples)]
        return "\n".join(lines)


class Values:
    """The parsed arguments: each as an attribute, and in ``given`` the names of the options on the command line."""

    def __init__(self, found: dict[str, object], given: frozenset[str]) -> None:
        self.found = found
        self.given = given

    # The option determines the type of the value.
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the type depends on the option
        try:
            return self.found[name]
        except KeyError:
            raise AttributeError(name) from None


def _spelling(option: Option) -> str:
    short = f"{option.short}, " if option.short else ""
    if option.bare is not None:
        return f"{short}{option.name}[={option.value}]"
    return f"{short}{option.name}{' ' + option.value if option.value else ''}"


def _described(option: Option) -> str:
    again = " (may be repeated)" if option.many else ""
    default = f" (default: {option.default})" if option.default not in (None, "") else ""
    return f"{option.help}{again}{default}"


def nearest(name: str, known: Sequence[str]) -> str:
    """Return `` (did you mean X?)``, or an empty string."""
    from difflib import get_close_matches

    found = get_close_matches(name, known, n=1)
    return f" (did you mean {found[0]}?)" if found else ""


def key_value(text: str) -> tuple[str, str]:
    """``key=value``. Raises ValueError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError("write it as key=value")
    return key.strip(), value.strip()


T = TypeVar("T")


def names_in(text: str, known: Mapping[str, T], option: str, noun: str) -> list[T]:
    """Return what the names in ``text``, such as ``kill,stop``, stand for, in their order. Raises UsageError."""
    for name in text.split(","):
        if name not in known:
            raise UsageError(f"{option}: unknown {noun} {name!r}; there are {', '.join(known)}")
    return [known[name] for name in text.split(",")]


def port_number(text: str) -> int:
    """A TCP port; 0 lets the system choose. Raises ValueError."""
    if not text.isdecimal() or int(text) > 65535:
        raise ValueError("not a port number between 0 and 65535")
    return int(text)


def seconds(text: str) -> float:
    """A duration of at least 0 seconds. Raises ValueError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError("not a number of seconds")
    return value


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
