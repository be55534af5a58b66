"""`milena container`: `milena node`, configured as Kafka's container image configures its node.

What the scripts of the image apache/kafka do (docker/jvm/launch, docker/resources/common-scripts, KafkaDockerWrapper):
arguments are variables, a mounted ``server.properties`` lies below the ``KAFKA_*`` variables, and without either there
is a default configuration. ``/etc/kafka/docker/run`` of Milena's image runs this.
"""

from __future__ import annotations

import os
import re

from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Positional

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOUNTED = "/mnt/shared/config/server.properties"
DEFAULTS = "/etc/kafka/docker/server.properties"
DATA = "/var/lib/kafka/data"
METRICS_PORT = "9404"
LEVELS = {
    "ALL": "debug",
    "TRACE": "debug",
    "DEBUG": "debug",
    "INFO": "info",
    "WARN": "warning",
    "ERROR": "error",
    "FATAL": "critical",
    "OFF": "critical",
}
"""Levels of log4j, and what comes nearest."""

COMMAND = CommandLine(
    "container",
    "Run one node in the foreground, configured as Kafka's container image configures its node:\n"
    f"{MOUNTED} if it is there, then KAFKA_* variables, or a default\n"
    f"configuration without either. Data is in {DATA} unless log.dirs says otherwise, and /metrics\n"
    f"and /health are on MILENA_METRICS_PORT (default: {METRICS_PORT}). This is what Milena's image runs.",
    positionals=[Positional("NAME=VALUE", "variables, in place of those of the environment", many=True)],
    examples=["milena container", "milena container KAFKA_NODE_ID=2 KAFKA_PROCESS_ROLES=broker ..."],
)


def main(arguments: Sequence[str]) -> int:
    values = COMMAND.parse(arguments)
    if values.help:
        print(COMMAND.help())
        return 0
    os.environ.update(variables(arguments))
    if os.environ.get("KAFKA_ADVERTISED_LISTENERS") == "":
        del os.environ["KAFKA_ADVERTISED_LISTENERS"]  # compose files leave a variable empty that is not to be there
    file = configuration_file(os.environ)
    os.environ.update(implied(os.environ, "" if file is None else read(file)))

    from milena.commands import node

    return node.main([*([] if file is None else [file]), *options(os.environ)])


def variables(arguments: Sequence[str]) -> dict[str, str]:
    """Of arguments NAME=VALUE. Raises UsageError."""
    found = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name:
            raise UsageError(f"milena container takes variables, NAME=VALUE, and not {argument!r}")
        found[name] = value
    return found


def configuration_file(environment: Mapping[str, str], mounted: str = MOUNTED, defaults: str = DEFAULTS) -> str | None:
    """The file to start with. A mounted one without content counts as none. Raises UserError if it cannot be read."""
    from milena.config.sources import from_environment

    if os.path.lexists(mounted) and read(mounted).strip():
        return mounted
    return None if from_environment(environment) else defaults


def read(file: str) -> str:
    """Its content. Raises UserError."""
    try:
        with open(file, encoding="latin-1") as opened:
            return opened.read()
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None


def implied(environment: Mapping[str, str], file: str) -> dict[str, str]:
    """Variables that follow from what is given. ``file``: the content of the configuration file."""
    from milena.config.sources import from_environment, from_properties

    given = {key: setting.value for key, setting in from_properties(file.encode("latin-1"), "").items()}
    own = {key: setting.value for key, setting in from_environment(environment).items()}
    both, added = given | own, {}
    roles = both.get("process.roles", "")
    if "listeners" not in own and roles.strip() != "controller" and own.get("advertised.listeners"):
        listening = re.sub("://[^:]*:", "://0.0.0.0:", own["advertised.listeners"])
        both["listeners"] = added["KAFKA_LISTENERS"] = listening
    if "log.dirs" not in both and "log.dir" not in both:
        added["KAFKA_LOG_DIRS"] = DATA
    if "controller.quorum.voters" not in both and "controller.quorum.bootstrap.servers" not in both:
        voter = only_voter(both)
        if voter is not None:
            added["KAFKA_CONTROLLER_QUORUM_VOTERS"] = voter
    return added


def only_voter(settings: Mapping[str, str]) -> str | None:
    """Of a node that is broker and controller, and names no voters: itself. Kafka's image refuses to start then."""
    roles = {role.strip() for role in settings.get("process.roles", "").split(",")}
    name = re.escape(settings.get("controller.listener.names", "").split(",")[0].strip())
    listener = re.search(rf"(?:^|,)\s*{name}://[^,]*:(\d+)", settings.get("listeners", ""), re.IGNORECASE)
    if roles != {"broker", "controller"} or not name or listener is None:
        return None
    return f"{settings.get('node.id', '')}@localhost:{listener[1]}"


def options(environment: Mapping[str, str]) -> list[str]:
    """Options of `milena node`. Raises UserError."""
    port = environment.get("MILENA_METRICS_PORT") or METRICS_PORT
    found = ["--control", port, "--control-host", "0.0.0.0"]
    level = environment.get("KAFKA_LOG4J_ROOT_LOGLEVEL")
    if level:
        if level.upper() not in LEVELS:
            raise UserError(f"KAFKA_LOG4J_ROOT_LOGLEVEL: {level!r} is not one of {', '.join(LEVELS)}")
        found += ["--log-level", LEVELS[level.upper()]]
    return found
