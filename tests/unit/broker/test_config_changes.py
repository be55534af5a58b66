"""Which resources of a config change a broker refuses, and which it forwards."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from milena.broker.controller_link import config_changes
from milena.broker.metadata.own_changes import OwnChanges
from milena.config.cleaner_rules import check_cleaner_change
from milena.config.values import ConfigError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_request_header, response_header
from milena.runtime import logging
from milena.runtime.log_levels import COMPONENTS, current_levels
from tests.unit.broker.fixtures import ME, Bench, Request

TOPIC, BROKER, LOGGER = 2, 4, 8
INVALID = int(ErrorCode.INVALID_REQUEST)


class Controller:
    """Accepts all resources, and returns them in another order."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    async def request(
        self, key: ApiKey, version: int | None = None, *, timeout: float | None = None, **fields: Any
    ) -> Any:
        if key is ApiKey.DESCRIBE_QUORUM:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        header, body = parse_request_header(memoryview(fields["request_data"]))
        request = messages.decode_request(header.api_key, header.api_version, body)
        self.seen.append([resource.resource_name for resource in request.resources])
        responses = [
            {"resource_type": one.resource_type, "resource_name": one.resource_name, "error_code": 0}
            for one in reversed(request.resources)
        ]
        answer = messages.encode_response(header.api_key, header.api_version, responses=responses)
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        return messages.build_response(ApiKey.ENVELOPE, 0, response_data=head + answer, error_code=0)


class NoProgress:
    applied_offset = known_offset = -1

    def on_progress(self, tell: Callable[[], None]) -> None: ...


def resource(kind: int, name: str, *changes: tuple[str, str | None], op: int = 0) -> dict[str, Any]:
    configs = [{"name": key, "value": value, "config_operation": op} for key, value in changes]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


async def alter(bench: Bench, *resources: dict[str, Any]) -> tuple[list[tuple[str, int]], list[list[str]]]:
    """(name, error) in the order of the response, and the names in each request to the controller."""
    controller = Controller()
    own_changes = OwnChanges(controller, bench.config.get_int, NoProgress(), bench.clock)
    node = SimpleNamespace(node_id=ME, controller=controller, config=bench.config, own_changes=own_changes)
    request = Request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
    body = messages.encode_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources)
    decoded = messages.decode_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)
    answer = await config_changes.handle(node, request.ctx, decoded)
    if answer is not None:
        request.ctx.respond_fields(**answer)
    return [(one.resource_name, int(one.error_code)) for one in request.response.responses], controller.seen


@pytest.mark.parametrize(
    "refused",
    [
        resource(TOPIC, "t", ("flush.ms", "1"), ("flush.ms", "2")),
        resource(TOPIC, "t", ("flush.ms", None)),
        resource(BROKER, "9", ("log.retention.ms", "1")),
        resource(BROKER, "x"),
        resource(BROKER, "9" * 5_000),
        resource(BROKER, f"--{ME}"),
        resource(LOGGER, "9" * 5_000, ("root", "INFO")),
        resource(LOGGER, f"--{ME}", ("root", "INFO")),
        resource(BROKER, str(ME), ("listeners", "PLAINTEXT://:1")),
        resource(99, "t"),
    ],
    ids=[
        "a key twice",
        "no value",
        "another broker",
        "no broker",
        "digits",
        "two signs",
        "digits of loggers",
        "two signs of loggers",
        "listeners",
        "an unknown type",
    ],
)
async def test_a_refused_resource_does_not_prevent_the_others(bench: Bench, refused: dict[str, Any]) -> None:
    answers, sent = await alter(bench, resource(TOPIC, "a"), refused, resource(TOPIC, "b"))
    assert answers == [("a", 0), (refused["resource_name"], INVALID), ("b", 0)]
    assert sent == [["a", "b"]]


async def test_a_repeated_resource_is_refused_twice_and_not_forwarded(bench: Bench) -> None:
    assert await alter(bench, resource(TOPIC, "a"), resource(TOPIC, "a")) == ([("a", INVALID)] * 2, [])


async def test_valid_resources_are_forwarded(bench: Bench) -> None:
    good = [
        resource(TOPIC, "a", ("flush.ms", None), op=1),
        resource(BROKER, ""),
        resource(BROKER, str(ME), ("log.retention.ms", "1")),
    ]
    answers, sent = await alter(bench, *good)
    assert sorted(answers) == [("", 0), (str(ME), 0), ("a", 0)] and sent == [["a", "", str(ME)]]


def of_broker(value: str | None, name: str = str(ME), key: str = "log.cleaner.threads") -> dict[str, Any]:
    return resource(BROKER, name, (key, value), op=0 if value is not None else 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (of_broker("3"), "Log cleaner threads cannot be increased to more than double the current value 1"),
        (of_broker("3", ""), "Log cleaner threads cannot be increased to more than double the current value 1"),
        (of_broker("0"), "Log cleaner threads should be at least 1"),
        (of_broker("1000", key="log.cleaner.dedupe.buffer.size"), "must be at least 1MB per cleaner thread."),
    ],
)
async def test_invalid_cleaner_changes_are_refused(bench: Bench, change: dict[str, Any], why: str) -> None:
    bench.config = bench.config.with_dynamic(default={}, broker={})
    assert await alter(bench, change) == ([(change["resource_name"], INVALID)], [])
    with pytest.raises(ConfigError, match=re.escape(why)):
        values = {one["name"]: one["value"] for one in change["configs"]}
        check_cleaner_change(bench.config, values, per_broker=bool(change["resource_name"]))


async def test_cleaner_changes_are_compared_with_the_current_values(bench: Bench) -> None:
    name = str(ME)
    bench.config = bench.config.with_dynamic(default={}, broker={"log.cleaner.threads": "4"})
    assert await alter(bench, of_broker("8")) == ([(name, 0)], [[name]])
    assert await alter(bench, of_broker("2")) == ([(name, 0)], [[name]])
    assert await alter(bench, of_broker("1")) == ([(name, INVALID)], [])
    assert await alter(bench, of_broker(None)) == ([(name, INVALID)], [])
    assert await alter(bench, of_broker("1", "")) == ([("", 0)], [[""]])  # the broker's own value is before it
    assert await alter(bench, of_broker("100", key="log.cleaner.backoff.ms")) == ([(name, 0)], [[name]])


async def test_variables_are_resolved_by_the_config_providers_that_are_set(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka 4.3.1, the providers of an earlier change count."""
    monkeypatch.setenv("SIZE_OF_THIS_TEST", "5000")
    name, kind = str(ME), "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    size = of_broker("${env:SIZE_OF_THIS_TEST}", key="message.max.bytes")
    bench.config = bench.config.with_dynamic(default={}, broker={})
    assert await alter(bench, size) == ([(name, INVALID)], [])
    providers = {"config.providers": "env", "config.providers.env.class": kind}
    bench.config = bench.config.with_dynamic(default={}, broker=providers)
    assert await alter(bench, size) == ([(name, 0)], [[name]])
    assert await alter(bench, of_broker("${env:NO_SUCH_VARIABLE}", key="message.max.bytes")) == ([(name, INVALID)], [])


def test_without_a_controller_every_resource_has_its_error() -> None:
    request = messages.build_request(ApiKey.ALTER_CONFIGS, 2, resources=[resource(TOPIC, "a"), resource(BROKER, "")])
    error = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    failed = config_changes.failed(Request(ApiKey.ALTER_CONFIGS, 2).ctx, request, error)
    assert [one["error_code"] for one in failed["responses"]] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert [one["resource_name"] for one in failed["responses"]] == ["a", ""]


LOGGER = 8
WRONG_LEVEL = int(ErrorCode.INVALID_CONFIG)


async def test_logger_levels_are_changed_by_the_broker_immediately(bench: Bench, logged: StringIO) -> None:
    isr, storage = logging.get_logger("isr"), logging.get_logger("storage")
    changed = resource(LOGGER, str(ME), ("isr", "DEBUG"), ("storage", "ERROR"))
    assert await alter(bench, changed, resource(TOPIC, "a")) == ([(str(ME), 0), ("a", 0)], [["a"]])
    assert [current_levels()[name] for name in ("isr", "storage", "broker")] == ["DEBUG", "ERROR", "INFO"]
    isr.debug("one")
    storage.warning("two")
    storage.error("three")
    logging.get_logger("broker").debug("four")
    logging.get_logger("broker").info("five")
    assert [json.loads(line)["event"] for line in logged.getvalue().splitlines()] == ["one", "three", "five"]
    await alter(bench, resource(LOGGER, str(ME), ("isr", None), op=1))
    await alter(bench, resource(LOGGER, str(ME), ("root", "FATAL")))
    isr.error("six")
    assert current_levels()["isr"] == "FATAL" and "six" not in logged.getvalue()


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (resource(LOGGER, "9", ("isr", "DEBUG")), INVALID),
        (resource(LOGGER, "x", ("isr", "DEBUG")), INVALID),
        (resource(LOGGER, str(ME), ("isr", "LOUD")), WRONG_LEVEL),
        (resource(LOGGER, str(ME), ("isr", "debug")), WRONG_LEVEL),
        (resource(LOGGER, str(ME), ("no.such", "INFO")), WRONG_LEVEL),
        (resource(LOGGER, str(ME), ("isr", "INFO"), op=2), INVALID),
        (resource(LOGGER, str(ME), ("root", None), op=1), INVALID),
        (resource(LOGGER, str(ME), ("isr", "DEBUG"), ("no.such", "INFO")), WRONG_LEVEL),
    ],
)
async def test_invalid_logger_levels_are_refused_and_change_nothing(
    bench: Bench, logged: StringIO, refused: dict[str, Any], code: int
) -> None:
    assert await alter(bench, refused) == ([(refused["resource_name"], code)], [])
    assert set(current_levels().values()) == {"INFO"}


def test_every_logger_has_a_level() -> None:
    root = Path(__file__).parents[3]
    files = (file for file in (root / "milena").rglob("*.py") if "pipeline" not in file.parts)  # which runs no node
    text = "".join(file.read_text() for file in files)
    assert set(re.findall(r'get_logger\(\s*"([^"]+)"', text)) == set(COMPONENTS)
