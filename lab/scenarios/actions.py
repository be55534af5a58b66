"""What a scenario can do. Brokers are letters, ``controller`` is the controller.

::

    start | stop | kill | power_off | wipe: B        or a list
    begin: B                                         start it, and go on before it serves; ``start`` is the end of it
    replace: {controller: null}                      a node that is down comes back as another test peer, or as ours
    topic: {replicas: [A, B]}                        the one topic, of one partition
    produce: {to: A, values: [...], acks: all}       each value a batch; or {from: 11, to: 20, text: "B:%d"};
                                                     ``error``: what comes of it; ``meanwhile``: a list of actions
    elect: B                                         preferred: B becomes the first replica, and leads
    wait: {conditions}                               see ``lab.scenarios.conditions``
    hold | drop | delay | disconnect | fail: {at: A, api: FETCH, from: B, as: name, ...}    ``from``: or a client id
    release: name
    trace: {at: B, api: FETCH, from: A, as: name}    what ``exchanges`` compares
    cut | heal: [A, B]
    remember: {name: $value}
    ask | propose | fetch: {...}                     requests of the scenario's own: see ``lab.scenarios.requests``
    configure: {key: value}                          of the topic
    move: A                                          the replica there, to another log directory; ``moved`` is its end
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from lab.scenarios.conditions import missing
from lab.scenarios.driver import CONTROLLER
from lab.scenarios.requests import ask, fetch, propose
from lab.scenarios.script import BROKERS, ScriptError, node_id
from lab.scenarios.stage import PARTITION, TOPIC, ScenarioFailed, Stage
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.produce import ProduceRequest, decode_produce_response, encode_produce_request
from protocol.records import Record, build_batch

ACKS: Final = {"all": -1, "1": 1, "0": 0}
PRODUCE_VERSION: Final = 12
TIMEOUT_MS: Final = 30_000


async def carry_out(stage: Stage, name: str, arguments: Any) -> None:
    """Raises ScriptError for an action that there is not, ScenarioFailed for one that does not go well."""
    action = _ACTIONS.get(name)
    if action is None:
        raise ScriptError(f"no action {name!r}; there are {', '.join(_ACTIONS)}")
    await action(stage, await stage.resolve(arguments))


async def _each(stage: Stage, nodes: str | list[str], do: Callable[[str], Awaitable[None]], *, up: bool) -> None:
    for node in [nodes] if isinstance(nodes, str) else nodes:
        if not up:
            await stage.observe()
            stage.up.discard(node)
            stage.forget(node)
        await do(node)
        if up:
            stage.up.add(node)


async def _start(stage: Stage, nodes: Any) -> None:
    await _each(stage, nodes, stage.start, up=True)


async def _begin(stage: Stage, node: str) -> None:
    stage.begin(node)


async def _stop(stage: Stage, nodes: Any) -> None:
    await _each(stage, nodes, stage.driver.stop, up=False)


async def _kill(stage: Stage, nodes: Any) -> None:
    await _each(stage, nodes, stage.driver.kill, up=False)


async def _power_off(stage: Stage, nodes: Any) -> None:
    await _each(stage, nodes, stage.driver.power_off, up=False)


async def _wipe(stage: Stage, nodes: Any) -> None:
    await _each(stage, nodes, stage.driver.wipe, up=False)


async def _topic(stage: Stage, arguments: Mapping[str, Any]) -> None:
    replicas = [node_id(broker) for broker in arguments["replicas"]]
    topic = {
        "name": TOPIC,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": PARTITION, "broker_ids": replicas}],
        "configs": [{"name": name, "value": value} for name, value in stage.script.config.items()],
    }
    response = await stage.ask(
        CONTROLLER, ApiKey.CREATE_TOPICS, topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False
    )
    result = response.topics[0]
    _expect_none("the topic", result.error_code)
    stage.take_topic_id(result.topic_id)


async def _produce(stage: Stage, arguments: Mapping[str, Any]) -> None:
    broker = arguments["to"]
    await stage.until(f"{broker} to lead", lambda: missing(stage, {"leader": broker}))
    await asyncio.gather(_write(stage, broker, arguments), _each_of(stage, arguments.get("meanwhile", ())))
    await stage.observe()


async def _each_of(stage: Stage, actions: Sequence[Mapping[str, Any]]) -> None:
    for action in actions:
        for name, arguments in action.items():
            await carry_out(stage, name, arguments)


async def _write(stage: Stage, broker: str, arguments: Mapping[str, Any]) -> None:
    acks = ACKS[str(arguments.get("acks", "all"))]
    expected = ErrorCode[arguments.get("error", "NONE")]
    for value in _values(arguments["values"]):
        batch = build_batch([Record(0, 0, None, value.encode())], base_timestamp=stage.driver.runtime.clock.time_ms())
        request = ProduceRequest(None, acks, TIMEOUT_MS, [(TOPIC, None, [(PARTITION, memoryview(batch))])])
        response = await stage.channel(broker).request_raw(
            ApiKey.PRODUCE,
            PRODUCE_VERSION,
            [encode_produce_request(PRODUCE_VERSION, request)],
            lambda body: decode_produce_response(PRODUCE_VERSION, body),
        )
        answer = response.topics[0][2][0]
        if answer.error_code != expected:
            raise ScenarioFailed(f"{value!r}: {ErrorCode(answer.error_code).name}, not {expected.name}")
        if acks == ACKS["all"] and expected is ErrorCode.NONE:
            stage.acknowledged[value] = answer.base_offset


def _values(values: Any) -> list[str]:
    if isinstance(values, Mapping):
        text = values.get("text", "msg %d")
        return [text % number for number in range(values["from"], values["to"] + 1)]
    return [f"msg {value}" if isinstance(value, int) else str(value) for value in values]


async def _elect(stage: Stage, broker: str) -> None:
    """By its own means the controller elects the first replica: so that is what the broker becomes."""
    replicas = [node_id(one) for one in stage.script.replicas]
    wanted = sorted(replicas, key=lambda node: node != node_id(broker))
    moved = await stage.ask(
        CONTROLLER,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        timeout_ms=TIMEOUT_MS,
        topics=[{"name": TOPIC, "partitions": [{"partition_index": PARTITION, "replicas": wanted}]}],
    )
    _expect_none("the order of the replicas", moved.responses[0].partitions[0].error_code)
    elected = await stage.ask(
        CONTROLLER,
        ApiKey.ELECT_LEADERS,
        election_type=0,
        topic_partitions=[{"topic": TOPIC, "partitions": [PARTITION]}],
        timeout_ms=TIMEOUT_MS,
    )
    _expect_none("the election", elected.replica_election_results[0].partition_result[0].error_code)


async def _wait(stage: Stage, conditions: Mapping[str, Any]) -> None:
    await stage.until(f"waiting for {conditions}", lambda: missing(stage, conditions))


def _rule(verb: str) -> Callable[[Stage, Any], Awaitable[None]]:
    async def add(stage: Stage, arguments: Mapping[str, Any]) -> None:
        more = {key: value for key, value in arguments.items() if key not in ("at", "from", "as")}
        if (peer := arguments.get("from")) is not None:
            more["peer"] = str(node_id(peer)) if peer in BROKERS else peer
        added = await stage.verb(arguments["at"], verb, **more)
        if (name := arguments.get("as")) is not None:
            stage.rules[name] = arguments["at"], added["rule"]

    return add


async def _release(stage: Stage, name: str) -> None:
    node, number = stage.rules.pop(name)
    await stage.verb(node, "release", rule=number)


async def _cut(stage: Stage, nodes: list[str]) -> None:
    await stage.driver.cut(*nodes)


async def _heal(stage: Stage, nodes: list[str]) -> None:
    await stage.driver.heal(*nodes)


async def _remember(stage: Stage, values: Mapping[str, Any]) -> None:
    stage.memory |= values


async def _replace(stage: Stage, peers: Mapping[str, str | None]) -> None:
    for node, peer in peers.items():
        stage.driver.replace(node, peer)


async def _move(stage: Stage, broker: str) -> None:
    found = await stage.directories(broker)
    target = next(path for path, holds in found.items() if not holds)
    moved = await stage.ask(
        broker,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        dirs=[{"path": target, "topics": [{"name": TOPIC, "partitions": [PARTITION]}]}],
    )
    _expect_none("the move", moved.results[0].partitions[0].error_code)
    stage.memory[f"{broker}.directory"] = target


async def _configure(stage: Stage, values: Mapping[str, Any]) -> None:
    changes = [{"name": name, "config_operation": 0, "value": str(value)} for name, value in values.items()]
    resource = {"resource_type": 2, "resource_name": TOPIC, "configs": changes}
    response = await stage.ask(CONTROLLER, ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False)
    _expect_none("the configuration", response.responses[0].error_code)


def _expect_none(what: str, error: int) -> None:
    if error:
        raise ScenarioFailed(f"{what}: {ErrorCode(error).name}")


_ACTIONS: Final[Mapping[str, Callable[[Stage, Any], Awaitable[None]]]] = {
    "start": _start,
    "begin": _begin,
    "stop": _stop,
    "kill": _kill,
    "power_off": _power_off,
    "wipe": _wipe,
    "replace": _replace,
    "topic": _topic,
    "produce": _produce,
    "elect": _elect,
    "wait": _wait,
    **{verb: _rule(verb) for verb in ("hold", "drop", "delay", "disconnect", "fail", "trace")},
    "release": _release,
    "cut": _cut,
    "heal": _heal,
    "remember": _remember,
    "ask": ask,
    "propose": propose,
    "fetch": fetch,
    "configure": _configure,
    "move": _move,
}
