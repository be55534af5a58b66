"""Options of the scripts, read as the option parser of Kafka's tools (JOpt Simple) reads them.

``--name VALUE``, ``--name=VALUE``, and the same with one dash. A value may begin with a dash. An option that Kafka has
and Milena does not is known by name, and an error that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from milena.runtime.numbers import whole
from milena.scripts.common.failures import ScriptError

VERSION: Final = "4.4.0"
"""The release of Kafka whose scripts these are."""


class UsageError(ScriptError):
    """The command line is wrong. The message is followed by the list of options."""

    def __init__(self, message: str, parser: Parser) -> None:
        super().__init__(message)
        self.parser = parser


class Option:
    """One option, named without dashes. Without ``value`` it is a flag; ``optional``: its value may be left out."""

    def __init__(
        self,
        name: str,
        about: str = "",
        value: str = "",
        *,
        optional: bool = False,
        convert: Callable[[str], object] = str,
        short: str = "",
        missing: str = "",
    ) -> None:
        """``missing``: what Milena lacks, because of which the option is an error."""
        self.name = name
        self.about = about
        self.value = value
        self.optional = optional
        self.convert = convert
        self.short = short
        self.missing = missing


class Found:
    """The options of one command line."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self.order: list[str] = []
        """Names in the order of the command line."""
        self.words: list[str] = []
        """Arguments that are not options."""
        self._values: dict[str, list[Any]] = {}

    def add(self, name: str, value: object = None) -> None:
        self.order.append(name)
        values = self._values.setdefault(name, [])
        if value is not None:
            values.append(value)

    def has(self, *names: str) -> bool:
        """Return whether one of the options was given."""
        return any(name in self._values for name in names)

    def all(self, name: str) -> list[Any]:
        """Return the values of an option that may be repeated."""
        return self._values.get(name, [])

    # The option determines the type of the value.
    def one(self, name: str, default: object = None) -> Any:  # noqa: ANN401 - the type depends on the option
        """Return the value of an option. Raises UsageError if it has several."""
        values = self.all(name)
        if len(values) > 1:
            raise self.wrong(f"Found multiple arguments for option {name}, but you asked for only one")
        return values[0] if values else default

    def require(self, *names: str) -> None:
        """Raise UsageError if an option is missing."""
        for name in names:
            if not self.has(name):
                raise self.wrong(f'Missing required argument "[{name}]"')

    def exclude(self, used: str, others: Iterable[str]) -> None:
        """Raise UsageError if ``used`` is combined with one of the others."""
        for other in others if self.has(used) else ():
            if other != used and self.has(other):
                raise self.wrong(f'Option "[{used}]" can\'t be used with option "[{other}]"')

    def wrong(self, message: str) -> UsageError:
        return UsageError(message, self.parser)


class Parser:
    """The options of one script. ``about`` is the first line of its help."""

    def __init__(self, about: str, options: Sequence[Option]) -> None:
        self.about = about
        self.options = [*options, Option("help", "Print usage information."), Option("version", "Display version.")]
        self._by_name = {option.name: option for option in self.options}
        self._by_name |= {option.short: option for option in self.options if option.short}

    def parse(self, arguments: Sequence[str]) -> Found:
        """Raises UsageError, also for ``--help`` and without arguments, as in Kafka; SystemExit after ``--version``."""
        found = Found(self)
        rest = list(arguments)
        while rest:
            word = rest.pop(0)
            if word == "--":
                found.words += rest
                break
            if word.startswith("-") and word != "-":
                self._take(word, rest, found)
            else:
                found.words.append(word)
        if not arguments or found.has("help"):
            raise found.wrong(self.about)
        if found.has("version"):
            print(VERSION)
            raise SystemExit(0)
        return found

    def _take(self, word: str, rest: list[str], found: Found) -> None:
        name, equals, text = word.lstrip("-").partition("=")
        option = self._by_name.get(name)
        if option is None:
            raise found.wrong(f"{name} is not a recognized option")
        if option.missing:
            raise ScriptError(f"--{name} is not supported: {option.missing}")
        if not option.value:
            found.add(option.name)
            return
        if not equals:
            if option.optional and (not rest or rest[0].startswith("-")):
                found.add(option.name)
                return
            if not rest:
                raise found.wrong(f"Option {name} requires an argument")
            text = rest.pop(0)
        try:
            found.add(option.name, option.convert(text))
        except ValueError:
            raise found.wrong(f"Cannot parse argument '{text}' of option {name}") from None

    def help(self) -> str:
        """Return the list of options."""
        from textwrap import wrap

        rows = [(_spelling(option), option.about) for option in self.options if not option.missing]
        width = max(len(left) for left, _ in rows) + 2
        lines = [f"{'Option':<{width}}Description", f"{'------':<{width}}-----------"]
        for left, right in sorted(rows):
            first, *others = wrap(right, max(80 - width, 30)) or [""]
            lines.append(f"{left:<{width}}{first}".rstrip())
            lines += [" " * width + other for other in others]
        return "\n".join(lines)


def _spelling(option: Option) -> str:
    names = f"-{option.short}, --{option.name}" if option.short else f"--{option.name}"
    if not option.value:
        return names
    return f"{names} [<{option.value}>]" if option.optional else f"{names} <{option.value}>"


def number(text: str) -> int:
    """An integer as Java reads it. Raises ValueError."""
    found = whole(text)
    if found is None:
        raise ValueError(text)
    return found


def integer(text: str) -> int:
    """An integer of 32 bits as Java reads it. Raises ValueError."""
    found = number(text)
    if not -(1 << 31) <= found < 1 << 31:
        raise ValueError(text)
    return found


def key_values(pairs: Iterable[str]) -> dict[str, str]:
    """Parse ``key=value`` arguments; a missing value is empty."""
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
