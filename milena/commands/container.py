"""`milena container`: `milena node`, configured as Kafka's container image configures its node.

What the scripts of the image apache/kafka do (docker/jvm/launch, docker/resources/common-scripts, KafkaDockerWrapper):
arguments are variables, a mounted ``server.properties`` lies below the ``KAFKA_*`` variables, and without either there
is a default configuration. ``/etc/kafka/docker/run`` of Milena's image runs this.
"""

from __future__ import annotations

import os
import re
import signal
import sys

from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Positional, port_number, seconds
from milena.up.layout import LAB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MOUNTED = "/mnt/shared/config/server.properties"
DEFAULTS = "/etc/kafka/docker/server.properties"
DATA = "/var/lib/kafka/data"
METRICS_PORT = "9404"
OWN_ADDRESS_LIMIT = "60"
WITHOUT_EFFECT = ("KAFKA_LOG4J_LOGGERS", "KAFKA_TOOLS_LOG4J_LOGLEVEL")
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
    f"and /health are on MILENA_METRICS_PORT (default: {METRICS_PORT}). MILENA_OWN_ADDRESS_LIMIT (default:\n"
    f"{OWN_ADDRESS_LIMIT}) is --own-address-limit of `milena node`. With MILENA_LAB, a folder beside log.dirs,\n"
    "`milena lab` in the container steers the node: for tests. This is what Milena's image runs.",
    positionals=[Positional("NAME=VALUE", "variables, in place of those of the environment", many=True)],
    examples=["milena container", "milena container KAFKA_NODE_ID=2 KAFKA_PROCESS_ROLES=broker ..."],
)


def main(arguments: Sequence[str]) -> int:
    end_by_sigterm()
    values = COMMAND.parse(arguments)
    if values.help:
        print(COMMAND.help())
        return 0
    os.environ.update(variables(arguments))
    warn_of(os.environ)
    if os.environ.get("KAFKA_ADVERTISED_LISTENERS") == "":
        del os.environ["KAFKA_ADVERTISED_LISTENERS"]  # compose files leave a variable empty that is not to be there
    file = configuration_file(os.environ)
    content = "" if file is None else read(file)
    os.environ.update(implied(os.environ, content))
    both = settings(os.environ, content)
    check_advertised(both)
    check_folders(both)

    from milena.commands import node

    return node.main([*([] if file is None else [file]), *options(os.environ)])


def end_by_sigterm() -> None:
    """From now on, until the node has its own handler: SIGTERM does nothing to the first process of a container
    otherwise. /etc/kafka/docker/run blocks it until here."""
    signal.signal(signal.SIGTERM, _ended)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _ended(number: int, _frame: object) -> None:
    os.write(2, b"milena: ended by SIGTERM before the node was started\n")
    os._exit(128 + number)


def variables(arguments: Sequence[str]) -> dict[str, str]:
    """Of arguments NAME=VALUE. Raises UsageError."""
    found = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name:
            raise UsageError(f"milena container takes variables, NAME=VALUE, and not {argument!r}")
        found[name] = value
    return found


def warn_of(environment: Mapping[str, str]) -> None:
    """Says on standard error which variables of Kafka's image are set and do nothing here."""
    idle = [name for name in WITHOUT_EFFECT if environment.get(name)]
    if idle:
        verb = "has" if len(idle) == 1 else "have"
        text = f"milena: {' and '.join(idle)} {verb} no effect: KAFKA_LOG4J_ROOT_LOGLEVEL sets the level of all logs\n"
        sys.stderr.write(text)


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


def settings(environment: Mapping[str, str], file: str) -> dict[str, str]:
    """Of the file's content, and over them those of the variables. Raises ConfigError."""
    from milena.config.sources import from_environment, from_properties

    found = from_properties(file.encode("latin-1"), MOUNTED) | from_environment(environment)
    return {key: setting.value for key, setting in found.items()}


def implied(environment: Mapping[str, str], file: str) -> dict[str, str]:
    """Variables that follow from what is given. ``file``: the content of the configuration file."""
    own, both, added = settings(environment, ""), settings(environment, file), {}
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


def check_advertised(settings: Mapping[str, str]) -> None:
    """Raises UserError if a node that is a controller alone advertises listeners that it does not have. Kafka's image
    refuses any there; one of the controller's own is fine with Kafka since KIP-853."""
    if settings.get("process.roles", "").strip() != "controller":
        return
    own = {name.strip().upper() for name in settings.get("controller.listener.names", "").split(",")}
    advertised = [one.partition("://")[0].strip() for one in settings.get("advertised.listeners", "").split(",")]
    strange = [name for name in advertised if name and name.upper() not in own]
    if strange:
        raise UserError(
            f"advertised.listeners: {' and '.join(strange)} cannot be reached at a controller, which has only the "
            "listeners of controller.listener.names"
        )


def check_folders(settings: Mapping[str, str]) -> None:
    """Raises UserError if no log directory can be used, or the folder of the tier cannot: a volume is missing then, or
    belongs to somebody else."""
    folders = [folder.strip() for folder in (settings.get("log.dirs") or settings.get("log.dir", "")).split(",")]
    faults = [fault for fault in map(fault_of, filter(None, folders)) if fault is not None]
    if faults and len(faults) == len(folders):
        raise UserError(f"log.dirs: {'; '.join(faults)}")
    tier = settings.get("rsm.config.dir", "").strip()
    if tier and settings.get("remote.log.storage.system.enable", "").strip().lower() == "true":
        fault = fault_of(tier)
        if fault is not None:
            raise UserError(f"rsm.config.dir: {fault}")


def fault_of(folder: str) -> str | None:
    """Why this user cannot keep files there; None if it can. The folder is made if it is missing."""
    user = os.geteuid()
    try:
        os.makedirs(folder, exist_ok=True)
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            return f"{folder} is mounted read-only"
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return f"{folder} belongs to user {os.stat(folder).st_uid}; user {user}, who runs this, may not write there"
    except PermissionError:
        return f"{folder} is not there, and user {user}, who runs this, may not make it: mount a volume there"
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return None


def checked(environment: Mapping[str, str], name: str, default: str, convert: Callable[[str], object]) -> str:
    """A variable's value. Raises UserError that names it, and not the option of `milena node` that it becomes."""
    value = environment.get(name) or default
    try:
        convert(value)
    except ValueError as error:
        raise UserError(f"{name}: {value!r} is {error}") from None
    return value


def options(environment: Mapping[str, str]) -> list[str]:
    """Options of `milena node`. Raises UserError."""
    port = checked(environment, "MILENA_METRICS_PORT", METRICS_PORT, port_number)
    found = ["--control", port, "--control-host", "0.0.0.0"]
    if environment.get(LAB):
        found += ["--lab", environment[LAB]]
    found += ["--own-address-limit", checked(environment, "MILENA_OWN_ADDRESS_LIMIT", OWN_ADDRESS_LIMIT, seconds)]
    level = environment.get("KAFKA_LOG4J_ROOT_LOGLEVEL")
    if level:
        if level.upper() not in LEVELS:
            raise UserError(f"KAFKA_LOG4J_ROOT_LOGLEVEL: {level!r} is not one of {', '.join(LEVELS)}")
        found += ["--log-level", LEVELS[level.upper()]]
    return found
