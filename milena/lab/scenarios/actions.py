"""The actions of a scenario. Brokers are letters, ``controller`` is the controller.

::

    start | stop | kill | power_off | wipe: B        or a list
    begin: B                                         start it and continue before it serves; ``start`` waits for it
    erase: {A: [name]}                               files in the log directories of a broker that is down
    replace: {controller: null}                      a node that is down restarts as another test peer, or as Milena's
    produce: {to: A, values: [...], acks: all}       each value is a batch; or {from: 11, to: 20, text: "B:%d"};
                                                     ``error``: the expected error; ``meanwhile``: a list of actions;
                                                     ``times``: ms, or "+1000" for a second from now; ``of: u-1``;
                                                     ``keyed: true``: the key of ``a=1`` is ``a``;
                                                     ``as_one: true``: one batch
    wait: {conditions}                               see ``lab.scenarios.conditions``
    hold | drop | delay | disconnect | fail: {at: A, api: FETCH, from: B, as: name, ...}    ``from``: or a client id
    release: name
    trace: {at: B, api: FETCH, from: A, as: name}    record requests, which ``exchanges`` compares
    cut | heal: [A, B]
    remember: {name: $value}
    ask | propose | fetch: {...}                     requests of the scenario's own: see ``lab.scenarios.requests``
    read | list_offsets: {...}                       requests of consumers: see ``lab.scenarios.reading``
    topic, elect, configure, move, ...               see ``lab.scenarios.topics``
    roll, flush, tier, retention, ...                see ``lab.scenarios.upkeep``
    clean, finish: {...}                             for a test peer: see ``lab.scenarios.cleanings``
    init, commit, abort, ...                         of producers: see ``transactions.actions`` here
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, NotRequired, TypeAlias, TypedDict, cast

from milena.command_line.options import nearest
from milena.lab.scenarios.cleanings import CLEANING_ACTIONS
from milena.lab.scenarios.conditions import missing
from milena.lab.scenarios.events import EventKind
from milena.lab.scenarios.reading import list_offsets, read
from milena.lab.scenarios.requests import ask, fetch, propose
from milena.lab.scenarios.script import BROKERS, Fields, ScriptError, node_id, partition_of
from milena.lab.scenarios.stage import Action, ScenarioFailed, Stage
from milena.lab.scenarios.topics import TIMEOUT_MS, TOPIC_ACTIONS
from milena.lab.scenarios.transactions.actions import (
    REQUESTS_IN_TRANSACTIONS,
    TRANSACTION_ACTIONS,
    Produced,
    produce_by,
)
from milena.lab.scenarios.upkeep import UPKEEP_ACTIONS
from milena.lab.scenarios.values import Values, shown_values, values_of
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests.produce import ProduceRequest, decode_produce_response, encode_produce_request

ACKS: Final = {"all": -1, "1": 1, "0": 0}
PRODUCE_VERSION: Final = 12
SCENARIO: Final = "scenario"
SILENT: Final = frozenset(
    {"wait", "trace", "remember", "produce", "read", "fetch", "ask", "propose", *REQUESTS_IN_TRANSACTIONS}
)
"""Actions that change nothing, or whose requests are events themselves, once they are answered."""


Nodes: TypeAlias = str | list[str]


class Produce(TypedDict):
    """The arguments of ``produce``."""

    to: str
    values: Values
    of: NotRequired[str]
    acks: NotRequired[str | int]
    error: NotRequired[str]
    times: NotRequired[Sequence[str | int]]
    keyed: NotRequired[bool]
    as_one: NotRequired[bool]
    meanwhile: NotRequired[Sequence[Fields]]


async def carry_out(stage: Stage, name: str, arguments: object) -> None:
    """Execute an action. Raises ScriptError for an unknown action, ScenarioFailed for one that fails."""
    action = ACTIONS.get(name)
    if action is None:
        raise ScriptError(f"no action {name!r}{nearest(name, list(ACTIONS))}; there are {', '.join(ACTIONS)}")
    resolved = await stage.resolve(arguments)
    if name not in SILENT or (isinstance(resolved, Mapping) and "unanswered" in resolved):
        stage.recorder.add(EventKind.ACTION, SCENARIO, action_line(name, arguments))
    try:
        await action(stage, resolved)
    except KeyError as error:
        if isinstance(resolved, Mapping) and error.args[0] not in resolved and isinstance(error.args[0], str):
            raise ScriptError(f"{name} needs {error.args[0]}; it has {', '.join(map(str, resolved))}") from error
        raise


def action_line(name: str, arguments: object) -> str:
    """Return an action as one line, as in ``hold at A, api FETCH, from B``."""
    return f"{name} {_words(arguments)}".rstrip()


def _words(value: object) -> str:
    match value:
        case None:
            return ""
        case Mapping():
            return ", ".join(f"{key} {_words(one)}".rstrip() for key, one in value.items())
        case list():
            return "[" + ", ".join(map(_words, value)) + "]"
    return str(value)


async def _each(stage: Stage, nodes: Nodes, do: Callable[[str], Awaitable[None]], *, up: bool) -> None:
    for node in [nodes] if isinstance(nodes, str) else nodes:
        if not up:
            await stage.observe()
            await stage.recorder.collect(node)
            stage.up.discard(node)
            stage.forget(node)
        await do(node)
        if up:
            stage.up.add(node)


async def _start(stage: Stage, nodes: Nodes) -> None:
    await _each(stage, nodes, stage.start, up=True)


async def _begin(stage: Stage, node: str) -> None:
    stage.begin(node)


async def _stop(stage: Stage, nodes: Nodes) -> None:
    await _each(stage, nodes, stage.driver.stop, up=False)


async def _kill(stage: Stage, nodes: Nodes) -> None:
    await _each(stage, nodes, stage.driver.kill, up=False)


async def _power_off(stage: Stage, nodes: Nodes) -> None:
    await _each(stage, nodes, stage.driver.power_off, up=False)


async def _wipe(stage: Stage, nodes: Nodes) -> None:
    await _each(stage, nodes, stage.driver.wipe, up=False)
    for node in [nodes] if isinstance(nodes, str) else nodes:
        stage.wiped(node)


async def _produce(stage: Stage, arguments: Produce) -> None:
    if "by" in arguments:
        await produce_by(stage, cast("Produced", arguments))
        return
    broker, partition = arguments["to"], arguments.get("of", "t-0")
    await stage.until(f"{broker} to lead", lambda: missing(stage, {"leaders": {partition: broker}}))
    await asyncio.gather(_write(stage, broker, arguments), _each_of(stage, arguments.get("meanwhile", ())))
    await stage.observe()


async def _each_of(stage: Stage, actions: Sequence[Fields]) -> None:
    for action in actions:
        for name, arguments in action.items():
            await carry_out(stage, name, arguments)


async def _write(stage: Stage, broker: str, arguments: Produce) -> None:
    acks = ACKS[str(arguments.get("acks", "all"))]
    expected = ErrorCode[arguments.get("error", "NONE")]
    topic, number = partition_of(arguments.get("of", "t-0"))
    values = values_of(arguments["values"])
    offsets: list[int] = []
    batches = [values] if arguments.get("as_one", False) else [[value] for value in values]
    for batched, time in zip_longest(batches, arguments.get("times", ()), fillvalue="+0"):
        clock = stage.driver.runtime.clock
        now, began = clock.time_ms(), clock.monotonic()
        records = [
            Record(
                delta, 0, value.partition("=")[0].encode() if arguments.get("keyed", False) else None, value.encode()
            )
            for delta, value in enumerate(batched)
        ]
        batch = build_batch(records, base_timestamp=_time(time, now))
        request = ProduceRequest(None, acks, TIMEOUT_MS, [(topic, None, [(number, memoryview(batch))])])
        response = await stage.channel(broker).request_raw(
            ApiKey.PRODUCE,
            PRODUCE_VERSION,
            [encode_produce_request(PRODUCE_VERSION, request)],
            lambda body: decode_produce_response(PRODUCE_VERSION, body),
        )
        answer = response.topics[0][2][0]
        if answer.error_code != expected:
            raise ScenarioFailed(f"{batched[0]!r}: {ErrorCode(answer.error_code).name}, not {expected.name}")
        found = {value: answer.base_offset + delta for delta, value in enumerate(batched)}
        offsets += found.values()
        if acks == ACKS["all"] and expected is ErrorCode.NONE:
            stage.acknowledged |= found
            stage.longest_write = max(stage.longest_write, clock.monotonic() - began)
    stage.recorder.add(
        EventKind.REQUEST,
        "producer",
        f"{shown_values(values)}, acks={arguments.get('acks', 'all')}",
        target=broker,
        api="Produce",
        result=expected.name if expected else f"offset {shown_values(offsets)}",
        error=bool(expected),
    )


def _time(text: str | int, now: int) -> int:
    return now + int(text[1:]) if isinstance(text, str) else text


async def _wait(stage: Stage, conditions: Fields) -> None:
    await stage.until(f"waiting for {conditions}", lambda: missing(stage, conditions))


def _rule(command: str) -> Callable[[Stage, Fields], Awaitable[None]]:
    async def add(stage: Stage, arguments: Fields) -> None:
        more = {key: value for key, value in arguments.items() if key not in ("at", "from", "as")}
        if (peer := arguments.get("from")) is not None:
            more["peer"] = str(node_id(peer)) if peer in BROKERS else peer
        added = await stage.command(arguments["at"], command, **more)
        if (name := arguments.get("as")) is not None:
            stage.rules[name] = arguments["at"], added["rule"]

    return add


async def _release(stage: Stage, name: str) -> None:
    node, number = stage.rule(name)
    del stage.rules[name]
    await stage.command(node, "release", rule=number)


async def _cut(stage: Stage, nodes: list[str]) -> None:
    await stage.driver.cut(*nodes)
    stage.cuts.add(frozenset(nodes))


async def _heal(stage: Stage, nodes: list[str]) -> None:
    await stage.driver.heal(*nodes)
    stage.cuts.discard(frozenset(nodes))


async def _remember(stage: Stage, values: Fields) -> None:
    stage.memory |= values


async def _erase(stage: Stage, files: Mapping[str, list[str]]) -> None:
    for node, names in files.items():
        await stage.driver.erase(node, names)


async def _replace(stage: Stage, peers: Mapping[str, str | None]) -> None:
    for node, peer in peers.items():
        stage.driver.replace(node, peer)


ACTIONS: Final[Mapping[str, Action]] = {
    "start": _start,
    "begin": _begin,
    "stop": _stop,
    "kill": _kill,
    "power_off": _power_off,
    "wipe": _wipe,
    "erase": _erase,
    "replace": _replace,
    "produce": _produce,
    "wait": _wait,
    **{command: _rule(command) for command in ("hold", "drop", "delay", "disconnect", "fail", "trace")},
    "release": _release,
    "cut": _cut,
    "heal": _heal,
    "remember": _remember,
    "ask": ask,
    "propose": propose,
    "fetch": fetch,
    "read": read,
    "list_offsets": list_offsets,
    **TOPIC_ACTIONS,
    **UPKEEP_ACTIONS,
    **CLEANING_ACTIONS,
    **TRANSACTION_ACTIONS,
}
