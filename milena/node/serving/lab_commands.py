"""Lab commands of a running node, for tests and manual use: rules for its requests, and commands of its role.

Every node has ``lab_commands``. The simulation calls it directly; `milena up --lab` opens a Unix socket to it. Named
arguments and results are JSON values (``from`` is the parameter ``from_``).

Commands of all nodes::

    hold | drop | delay | disconnect | fail   api, peer, node, topic, partition, group, transactional_id, every,
                                              probability, count, side (request | response), ms (delay),
                                              error (fail)        -> {"rule": 3}
    trace     the same without side, ms and error: records requests with their answers    -> {"rule": 4}
    traced    rule, take: the requests and answers that it has recorded; with take they are forgotten
    release   rule: releases the held requests and removes it    -> {"hits": 2, "released": 1}
    rules     all rules, with their hits and held requests
    clear     releases all rules
    wait      rule, hits, seconds: waits until the rule has this many hits
    help      the commands of this node
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from keyword import iskeyword
from typing import Any, Final

from milena.node.rules.rules import Rule, RuleAction, Rules, Side
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError

LabCommand = Callable[..., object]
DEFAULT_WAIT: Final = 30.0
"""Seconds."""


class LabCommandError(Exception):
    """A command cannot be executed; the message gives the reason."""


class LabCommands:
    """The commands of one node. ``own``: the commands of its role; a command's docstring is its help."""

    def __init__(self, rules: Rules, own: dict[str, LabCommand]) -> None:
        self._rules = rules
        self._commands: dict[str, LabCommand] = {
            "release": self._release,
            "rules": self._all_rules,
            "clear": self._clear,
            "wait": self._wait,
            "traced": self._traced,
            "help": self._help,
            **own,
        }

    def add(self, name: str, command: LabCommand) -> None:
        """Add a command that the node's environment provides (process or simulation)."""
        self._commands[name] = command

    def __contains__(self, command: str) -> bool:
        return command in self._commands or command in _ACTIONS

    async def call(self, command: str, **arguments: Any) -> Any:  # noqa: ANN401 - JSON of any command
        """Execute a command. Raises LabCommandError if it cannot be executed."""
        action = _ACTIONS.get(command)
        function = self._commands.get(command) if action is None else self._add_rule
        if function is None:
            raise LabCommandError(
                f"no command {command!r}; there are {', '.join(sorted([*self._commands, *_ACTIONS]))}"
            )
        positional = [] if action is None else [action]
        arguments = {f"{name}_" if iskeyword(name) else name: value for name, value in arguments.items()}
        try:
            bound = inspect.signature(function).bind(*positional, **arguments)
        except TypeError as misuse:
            message = str(misuse).replace("got an unexpected keyword argument", "unknown argument")
            raise LabCommandError(f"{command}: {message}") from None
        for name, kind in mistyped_arguments(bound):
            raise LabCommandError(f"{command}: {name.rstrip('_')}={bound.arguments[name]}: not a value of type {kind}")
        try:
            result = function(*positional, **arguments)
            return await result if isinstance(result, Awaitable) else result
        except TimeoutError:
            raise LabCommandError(f"{command}: timed out") from None
        except (KafkaError, LookupError, ValueError, OSError) as error:
            raise LabCommandError(f"{command}: {error.args[0] if isinstance(error, LookupError) else error}") from error

    def _add_rule(
        self,
        action: RuleAction,
        *,
        api: str | None = None,
        peer: str | int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        every: int | None = None,
        probability: float | None = None,
        count: int | None = None,
        side: str = Side.REQUEST.value,
        ms: float | None = None,
        error: str | int | None = None,
    ) -> dict[str, int]:
        if (ms is None) is (action is RuleAction.DELAY):
            raise ValueError("delay requires ms, and only delay takes it")
        if (error is None) is (action is RuleAction.FAIL):
            raise ValueError("fail requires error, and only fail takes it")
        if partition is not None and topic is None:
            raise ValueError("partition requires topic")
        if every is not None and every < 1:
            raise ValueError(f"every={every}: not a number from 1 on")
        if probability is not None and not 0 <= probability <= 1:
            raise ValueError(f"probability={probability}: not between 0 and 1")
        rule = Rule(
            action=action,
            api=None if api is None else api_of(api),
            peer=None if peer is None else str(peer),
            topic=topic,
            partition=partition,
            node=node,
            group=group,
            transactional_id=transactional_id,
            every=every,
            probability=probability,
            count=count,
            side=Side(side),
            seconds=(ms or 0) / 1000,
            error=ErrorCode.UNKNOWN_SERVER_ERROR if error is None else error_of(error),
        )
        return {"rule": self._rules.add(rule)}

    def _release(self, rule: int) -> dict[str, int]:
        """rule: release the held requests, in order, and remove the rule"""
        held = len(self._rules.get(rule).held)
        return {"hits": self._rules.release(rule).hits, "released": held}

    def _all_rules(self) -> list[dict[str, object]]:
        """all rules, with their hits and held requests"""
        return [rule.describe() for rule in self._rules.all()]

    def _traced(self, rule: int, take: bool = False) -> list[dict[str, object]]:
        """rule, take=false: the requests that a trace has recorded, with their answers; with take they are forgotten"""
        exchanges = self._rules.get(rule).exchanges
        found = [exchange.as_json() for exchange in exchanges]
        if take:
            exchanges.clear()
        return found

    def _clear(self) -> dict[str, int]:
        """release all rules"""
        return {"released": sum(self._release(rule.number)["released"] for rule in self._rules.all())}

    async def _wait(self, rule: int, hits: int = 1, seconds: float = DEFAULT_WAIT) -> dict[str, object]:
        """rule, hits=1, seconds=30: wait until the rule has this many hits"""
        return (await self._rules.wait(rule, hits, seconds)).describe()

    def _help(self) -> dict[str, str]:
        """the commands of this node"""
        rules = dict.fromkeys(_ACTIONS, RULE_HELP)
        return rules | {
            name: inspect.cleandoc(command.__doc__ or "") for name, command in sorted(self._commands.items())
        }


_ACTIONS: Final = {action.value: action for action in RuleAction}


RULE_HELP: Final = (
    "api, peer, node, topic, partition, group, transactional_id, every, probability, count, side; "
    "ms for delay, error for fail"
)
_KINDS: Final[dict[str, type | tuple[type, ...]]] = {
    "int": int,
    "float": (int, float),
    "str": str,
    "bool": bool,
    "None": type(None),
}


def mistyped_arguments(bound: inspect.BoundArguments) -> Iterator[tuple[str, str]]:
    """Yield the names of arguments whose values do not have the parameters' annotated types, with these types."""
    for name, value in bound.arguments.items():
        kinds = str(bound.signature.parameters[name].annotation).split(" | ")
        if set(kinds) <= set(_KINDS) and not any(isinstance(value, _KINDS[kind]) for kind in kinds):
            yield name, " or ".join(kind for kind in kinds if kind != "None")


def api_of(name: str) -> ApiKey:
    """Return the API key named ``ALTER_PARTITION`` or ``AlterPartition``. Raises ValueError."""
    normalized = name.replace("_", "").upper()
    for key in ApiKey:
        if key.name.replace("_", "") == normalized:
            return key
    raise ValueError(f"unknown API {name!r}")


def error_of(error: str | int) -> ErrorCode:
    """Return the error code with this name or number. Raises ValueError."""
    if isinstance(error, int):
        if error not in ErrorCode.__members__.values():
            raise ValueError(f"unknown error code {error}")
        return ErrorCode(error)
    if error not in ErrorCode.__members__:
        raise ValueError(f"unknown error code {error!r}")
    return ErrorCode[error]
