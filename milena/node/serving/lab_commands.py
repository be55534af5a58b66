"""Lab commands of a running node, for tests and manual use: rules for its requests, and commands of its role.

Every node has ``lab_commands``. The simulation calls it directly; `milena up --lab` opens a Unix socket to it. Named
arguments and results are JSON values (``from`` is the parameter ``from_``). ``lab_catalog`` describes the commands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from difflib import get_close_matches
from keyword import iskeyword
from typing import Any, Final

from milena.node.rules.rules import Rule, RuleAction, Rules, Side
from milena.node.serving.lab_catalog import CATALOG
from milena.node.serving.lab_descriptions import LabCommandDescription, Misused
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.randomness import Randomness

LabCommand = Callable[..., object]


class LabCommandError(Exception):
    """A command cannot be executed; the message gives the reason."""


class LabCommandTimeout(LabCommandError):
    """A command that waits did not see its condition in time."""


class LabCommands:
    """The commands of one node. ``own``: the commands of its role; ``listeners``: the names of its listeners."""

    def __init__(self, rules: Rules, own: Mapping[str, LabCommand], listeners: Sequence[str]) -> None:
        self._rules = rules
        self._listeners = listeners
        self._commands: dict[str, LabCommand] = {}
        self._descriptions: dict[str, LabCommandDescription] = {}
        common: dict[str, LabCommand] = {
            "release": self._release,
            "rules": self._all_rules,
            "clear": self._clear,
            "wait": self._wait,
            "traced": self._traced,
            "help": self._help,
        }
        rules_added = dict.fromkeys(_ACTIONS, self._add_rule)
        for name, command in {**rules_added, **common, **own}.items():
            self.add(name, command)

    def add(self, name: str, command: LabCommand, description: LabCommandDescription | None = None) -> None:
        """Add a command that the node's environment provides (process or simulation). ``description``: as in the
        catalog if it is None."""
        self._commands[name] = command
        self._descriptions[name] = CATALOG[name] if description is None else description

    def drop_held(self) -> None:
        """Close the connections of the requests that rules hold, instead of handling them later."""
        self._rules.disconnect_held("the node's faults end")

    def __contains__(self, command: str) -> bool:
        return command in self._commands

    @property
    def functions(self) -> Mapping[str, LabCommand]:
        """The functions by the names of the commands."""
        return self._commands

    async def call(self, command: str, **arguments: Any) -> Any:  # noqa: ANN401 - JSON of any command
        """Execute a command. Raises LabCommandError if it cannot be executed, LabCommandTimeout if it waited in
        vain."""
        function = self._commands.get(command)
        if function is None:
            raise LabCommandError(_unknown("command", command, sorted(self._commands)))
        try:
            self._descriptions[command].check(arguments)
        except Misused as misused:
            raise LabCommandError(str(misused)) from None
        action = _ACTIONS.get(command)
        positional = [] if action is None else [action]
        arguments = {f"{name}_" if iskeyword(name) else name: value for name, value in arguments.items()}
        try:
            result = function(*positional, **arguments)
            return await result if isinstance(result, Awaitable) else result
        except TimeoutError:
            raise LabCommandTimeout(f"{command}: timed out") from None
        except (KafkaError, LookupError, ValueError, OSError) as error:
            raise LabCommandError(f"{command}: {error.args[0] if isinstance(error, LookupError) else error}") from error

    def _add_rule(
        self,
        action: RuleAction,
        *,
        api: str | None = None,
        peer: str | int | None = None,
        client_id: str | None = None,
        node: int | None = None,
        listener: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        every: int | None = None,
        probability: float | None = None,
        seed: int | None = None,
        count: int | None = None,
        side: str = Side.REQUEST.value,
        ms: float = 0,
        error: str | int | None = None,
    ) -> dict[str, int]:
        if partition is not None and topic is None:
            raise ValueError("partition requires topic")
        if listener is not None and listener not in self._listeners:
            raise ValueError(_unknown("listener", listener, self._listeners))
        for name, number in (("every", every), ("count", count)):
            if number is not None and number < 1:
                raise ValueError(f"{name}={number}: not a number from 1 on")
        if probability is not None and not 0 <= probability <= 1:
            raise ValueError(f"probability={probability}: not between 0 and 1")
        if seed is not None and probability is None:
            raise ValueError("seed requires probability")
        if ms < 0:
            raise ValueError(f"ms={ms}: not a number from 0 on")
        rule = Rule(
            action=action,
            api=None if api is None else api_of(api),
            peer=None if peer is None else str(peer),
            client_id=client_id,
            node=node,
            listener=listener,
            topic=topic,
            partition=partition,
            group=group,
            transactional_id=transactional_id,
            every=every,
            probability=probability,
            seed=seed,
            random=None if seed is None else Randomness(seed),
            count=count,
            side=Side(side),
            seconds=ms / 1000,
            error=ErrorCode.UNKNOWN_SERVER_ERROR if error is None else error_of(error),
        )
        return {"rule": self._rules.add(rule)}

    def _release(self, rule: int, first: int | None = None) -> dict[str, int]:
        found = self._rules.get(rule)
        if first is not None:
            if first < 1:
                raise ValueError(f"first={first}: not a number from 1 on")
            return {"hits": found.hits, "released": self._rules.release_first(rule, first)}
        held = len(found.held)
        return {"hits": self._rules.release(rule).hits, "released": held}

    def _all_rules(self) -> list[dict[str, object]]:
        return [rule.describe() for rule in self._rules.all()]

    def _traced(self, rule: int, take: bool = False) -> list[dict[str, object]]:
        exchanges = self._rules.get(rule).exchanges
        found = [exchange.as_json() for exchange in exchanges]
        if take:
            exchanges.clear()
        return found

    def _clear(self) -> dict[str, int]:
        return {"released": sum(self._release(rule.number)["released"] for rule in self._rules.all())}

    async def _wait(self, rule: int, hits: int = 1, seconds: float = 30.0) -> dict[str, object]:
        return (await self._rules.wait(rule, hits, seconds)).describe()

    def _help(self) -> dict[str, dict[str, object]]:
        return {name: described.as_json() for name, described in sorted(self._descriptions.items())}


_ACTIONS: Final = {action.value: action for action in RuleAction}


def api_of(name: str) -> ApiKey:
    """Return the API key named ``ALTER_PARTITION`` or ``AlterPartition``. Raises ValueError."""
    normalized = name.replace("_", "").upper()
    for key in ApiKey:
        if key.name.replace("_", "") == normalized:
            return key
    raise ValueError(_unknown("API", name, [key.name for key in ApiKey]))


def error_of(error: str | int) -> ErrorCode:
    """Return the error code with this name or number. Raises ValueError."""
    numbers = [int(code) for code in ErrorCode]
    if isinstance(error, int):
        if error not in numbers:
            raise ValueError(f"unknown error code {error}; there are {min(numbers)} to {max(numbers)}")
        return ErrorCode(error)
    if error not in ErrorCode.__members__:
        raise ValueError(_unknown("error code", error, list(ErrorCode.__members__)))
    return ErrorCode[error]


def _unknown(what: str, name: str, known: Sequence[str]) -> str:
    """Return the message for a name that is not one of ``known``."""
    close = get_close_matches(name.upper(), known, n=1) or get_close_matches(name, known, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"no {what} {name!r}{hint}; there are {', '.join(known)}"
