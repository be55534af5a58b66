"""Each configuration is read, and starts a node that is written to and read from. Where Milena, or any Kafka 4, cannot
start with it, the errors name what to change, and the node starts after that."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.config.broker_config import unknown_keys
from milena.config.sources import from_environment, from_properties
from tests.foreign.configurations import Foreign, configurations, on_this_machine, read, repaired, text_of
from tests.wire.command import milena, node, without_kafka

ALL = configurations()
EVERYDAY = {"kafka-image-file", "kafka-compose-single", "testcontainers-java", "confluent-kafka-python"}
"""Those that `make test` starts."""


def ids(found: list[Foreign]) -> list[str]:
    return [foreign.id for foreign in found]


def test_there_are_thirty_configurations_each_with_its_source() -> None:
    assert len(set(ids(ALL))) == len(ALL) >= 30
    assert len({foreign.source for foreign in ALL}) == len(ALL)
    assert all(foreign.source.startswith("https://github.com/") for foreign in ALL)
    assert set(ids(ALL)) >= EVERYDAY


@pytest.mark.parametrize("foreign", ALL, ids=ids(ALL))
def test_the_errors_say_what_to_change(foreign: Foreign) -> None:
    given, steps = repaired(foreign)
    assert steps == foreign.steps
    config = read(foreign, given)
    assert config.is_broker and config.is_controller
    assert len(config.warnings) <= 3


@pytest.mark.parametrize("foreign", ALL, ids=ids(ALL))
def test_no_key_is_taken_for_a_misspelt_one(foreign: Foreign) -> None:
    settings = from_environment(foreign.settings)
    if not foreign.by_variables:
        settings = from_properties(text_of(foreign.settings).encode(), "f")
    assert [key.error for key in unknown_keys(settings) if key.near_miss] == []


@pytest.mark.parametrize(
    "foreign",
    [pytest.param(one, id=one.id, marks=() if one.id in EVERYDAY else pytest.mark.slow) for one in ALL],
)
def test_a_node_starts_and_is_written_to_and_read_from(foreign: Foreign, tmp_path: Path) -> None:
    given = on_this_machine(foreign, repaired(foreign)[0], tmp_path)
    environment, command, arguments = without_kafka(), "node", list[str]()
    if foreign.by_variables:
        environment, command = environment | given, "container"
    else:
        (tmp_path / "server.properties").write_text(text_of(given))
        arguments.append(str(tmp_path / "server.properties"))
    with node(tmp_path, *arguments, env=environment, command=command) as running:
        controllers = given[foreign.name("controller.listener.names")].upper()
        for name, address in running.listeners.items():
            if name != controllers:
                topic = f"of-{name.lower()}"
                milena("topic", "create", topic, "--replicas", "1", "-b", address)
                milena("produce", topic, "-b", address, stdin="here\n")
                assert milena("consume", topic, "--from-beginning", "--max", "1", "-b", address).out == "here\n"
