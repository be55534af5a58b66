"""The form in which a lab command is described: ``help``, `milena lab`, the HTTP API, the documentation and the check
of arguments all use it. Imports almost nothing, for the command line."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Final

REQUIRED: Final = object()
"""The default of an argument without a default."""
KINDS: Final[Mapping[str, Callable[[object], bool]]] = {
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list | tuple),
}
"""The types of JSON that arguments have, and whether a value is of the type."""


class Misused(ValueError):
    """Arguments do not fit a command; the message says what is valid."""


class Argument:
    """One argument. ``kinds``: keys of KINDS; a value must be of one of them. ``choices``: the valid values, if they
    are few. An argument with the default None may also be null."""

    __slots__ = ("choices", "default", "help", "kinds", "name")

    def __init__(
        self, name: str, kinds: str, help: str, default: object = REQUIRED, choices: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.kinds = kinds.split(" or ")
        self.help = help
        self.default = default
        self.choices = choices

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def check(self, value: object) -> None:
        """Raise Misused if the value is not valid."""
        if value is None and self.default is None:
            return
        if not any(KINDS[kind](value) for kind in self.kinds):
            raise Misused(f"{self.name}={shown(value)} is not of type {' or '.join(self.kinds)}: {self.help}")
        if self.choices and value not in self.choices:
            raise Misused(f"{self.name}={shown(value)} is none of {', '.join(self.choices)}")

    def as_json(self) -> dict[str, object]:
        described: dict[str, object] = {"name": self.name, "type": list(self.kinds), "required": self.required}
        if not self.required:
            described["default"] = self.default
        if self.choices:
            described["choices"] = list(self.choices)
        return described | {"help": self.help}


class LabCommandDescription:
    """One command.

    ``nodes``: the kinds of nodes that have it, of ``broker`` and ``controller``. ``group``: a heading. ``changes``:
    whether it changes something. ``undo``: how to undo that; empty if it changes nothing. ``of_process``: whether it
    controls the node's process, so that a node that is down has it, too.
    """

    __slots__ = ("arguments", "changes", "group", "name", "nodes", "of_process", "returns", "summary", "undo")

    def __init__(
        self,
        name: str,
        summary: str,
        arguments: Sequence[Argument] = (),
        *,
        returns: str,
        undo: str = "",
        nodes: Sequence[str] = ("broker", "controller"),
        group: str = "",
        of_process: bool = False,
    ) -> None:
        self.name = name
        self.summary = summary
        self.arguments = arguments
        self.returns = returns
        self.undo = undo
        self.changes = bool(undo)
        self.nodes = nodes
        self.group = group
        self.of_process = of_process

    def check(self, given: Mapping[str, object]) -> None:
        """Raise Misused if arguments are missing, unknown or not valid."""
        by_name = {argument.name: argument for argument in self.arguments}
        for name, value in given.items():
            if name not in by_name:
                raise Misused(f"{self.name}: unknown argument {name!r}; {self.takes}")
            try:
                by_name[name].check(value)
            except Misused as misused:
                raise Misused(f"{self.name}: {misused}") from None
        missing = [argument for argument in self.arguments if argument.required and argument.name not in given]
        if missing:
            raise Misused(f"{self.name}: {missing[0].name} is missing: {missing[0].help}")

    @property
    def takes(self) -> str:
        """Return the sentence ``it takes a, b``."""
        return f"it takes {', '.join(one.name for one in self.arguments) or 'no arguments'}"

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "group": self.group,
            "summary": self.summary,
            "arguments": [argument.as_json() for argument in self.arguments],
            "returns": self.returns,
            "changes": self.changes,
            "undo": self.undo or None,
            "nodes": list(self.nodes),
            "of_process": self.of_process,
        }


def shown(value: object) -> str:
    """Return a value as JSON, cut to a readable length."""
    import json

    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
