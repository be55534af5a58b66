"""The configurations in ``configurations.yaml``, what has to be changed in each, and its addresses on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from milena.command_line.errors import UserError
from milena.commands.container import check_advertised, implied, settings
from milena.commands.node import checked
from milena.config.node_config import NodeConfig
from milena.config.sources import from_environment, from_properties
from milena.config.values import ConfigError
from milena.up.ports import free

FILE: Final = "file"
"""The style of a server.properties; the other style is ``variables``, the environment of a container."""
EXAMPLE: Final = re.compile(r"A single node needs, for example, (.*)")
HOST: Final = "127.0.0.1"


@dataclass(frozen=True)
class Foreign:
    """One configuration."""

    id: str
    source: str
    """The URL of the file."""
    about: str
    style: str
    steps: list[str]
    """The errors that a user meets one after the other, by the names in ``STEPS``."""
    settings: dict[str, str]
    """Keys, or variables."""

    @property
    def by_variables(self) -> bool:
        return self.style != FILE

    def name(self, key: str) -> str:
        """Return a key as this style writes it."""
        return f"KAFKA_{key.replace('.', '_').upper()}" if self.by_variables else key


def configurations() -> list[Foreign]:
    """Return all of them, with those in the compose files."""
    text = Path(__file__).with_name("configurations.yaml").read_text()
    return [*(Foreign(**entry) for entry in yaml.safe_load(text)), *_of_compose_files()]


def _of_compose_files() -> Iterator[Foreign]:
    """Yield the nodes of ``compose_files.yaml``, which tests/containers starts in containers."""
    for entry in yaml.safe_load(Path(__file__).with_name("compose_files.yaml").read_text()):
        for service in entry["services"].values():
            settings = {name: str(value) for name, value in service["environment"].items()}
            if "KAFKA_PROCESS_ROLES" in settings:
                yield Foreign(f"{entry['id']}-compose", entry["source"], entry["about"], "variables", [], settings)


def read(foreign: Foreign, given: Mapping[str, str]) -> NodeConfig:
    """Return the configuration of a node that is started with these settings, by `milena container` if they are
    variables. Raises ConfigError and UserError as the command does."""
    if not foreign.by_variables:
        config = checked(from_properties(text_of(given).encode(), "server.properties"), {})
    else:
        environment = {**given, **implied(given, "")}
        check_advertised(settings(environment, ""))
        config = checked(from_environment(environment), environment)
    if len(config.quorum_voters) > 1:
        raise UserError("quorums of several voters are not supported yet")  # the controller says so when it starts
    return config


def text_of(given: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in given.items())


def repaired(foreign: Foreign) -> tuple[dict[str, str], list[str]]:
    """Return the settings after the user has done what each error says, and the names of the errors."""
    given, steps = dict(foreign.settings), list[str]()
    while True:
        try:
            read(foreign, given)
        except (ConfigError, UserError) as error:
            step = next(name for name, (sign, _) in STEPS.items() if sign in str(error))
            assert step not in steps, f"{step} does not help: {error}"
            given = STEPS[step][1](foreign, given, str(error))
            steps.append(step)
        else:
            return given, steps


Repair = Callable[[Foreign, dict[str, str], str], dict[str, str]]


def _renamed(foreign: Foreign, given: dict[str, str], message: str) -> dict[str, str]:
    return {name.replace("KAFKA_CFG_", "KAFKA_"): value for name, value in given.items()}


def _required(foreign: Foreign, given: dict[str, str], message: str) -> dict[str, str]:
    """Add the example in the message."""
    found = EXAMPLE.search(message)
    assert found is not None, message
    return {**given, **dict(pair.split("=", 1) for pair in re.split(r" (?=[A-Za-z._]+=)", found[1]))}


def _plain(foreign: Foreign, given: dict[str, str], message: str) -> dict[str, str]:
    """Map all listeners to PLAINTEXT."""
    names = [entry.partition("://")[0].strip() for entry in given[foreign.name("listeners")].split(",")]
    return {**given, foreign.name("listener.security.protocol.map"): ",".join(f"{name}:PLAINTEXT" for name in names)}


def _unprotected(foreign: Foreign, given: dict[str, str], message: str) -> dict[str, str]:
    return {**given, "MILENA_UNPROTECTED": "1"}


def _only_voter(foreign: Foreign, given: dict[str, str], message: str) -> dict[str, str]:
    key = foreign.name("controller.quorum.voters")
    return {**given, key: given[key].split(",")[0]}


def _routable(foreign: Foreign, given: dict[str, str], message: str) -> dict[str, str]:
    key = foreign.name("controller.quorum.voters")
    return {**given, key: given[key].replace("@0.0.0.0:", "@localhost:")}


STEPS: Final[Mapping[str, tuple[str, Repair]]] = {
    "bitnami": ("KAFKA_CFG_* are variables of Bitnami's image", _renamed),
    "required": ("Missing required configuration", _required),
    "protocol": ("which is not supported yet: only PLAINTEXT is", _plain),
    "authorizer": ("authorizers are not supported yet", _unprotected),
    "routable": ("cannot use the nonroutable meta-address 0.0.0.0", _routable),
    "voters": ("quorums of several voters", _only_voter),
}
"""By name: a part of the error, and what the user does then."""


def on_this_machine(foreign: Foreign, given: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the settings with free ports of this machine in place of the hosts and ports, and with a data folder. An
    advertised listener gets the port that its listener has, as a container engine publishes it."""
    places = dict(given)
    listeners = list(_entries(places[foreign.name("listeners")]))
    ports = dict(zip((name for name, _ in listeners), free(HOST, len(listeners)), strict=True))
    voters, advertised = foreign.name("controller.quorum.voters"), foreign.name("advertised.listeners")
    controller = places[foreign.name("controller.listener.names")].upper()
    places[foreign.name("listeners")] = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
    if advertised in places:
        names = [name for name, _ in _entries(places[advertised])]
        places[advertised] = ",".join(f"{name}://{HOST}:{ports[name]}" for name in names)
    if voters in places:
        places[voters] = f"{places[voters].partition('@')[0]}@{HOST}:{ports[controller]}"
    places[foreign.name("log.dirs")] = str(folder / "data")
    if foreign.by_variables:
        places["MILENA_METRICS_PORT"] = str(free(HOST, 1)[0])
    return places


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and address of each listener."""
    for entry in text.split(","):
        name, _, address = entry.strip().partition("://")
        yield name.upper(), address
