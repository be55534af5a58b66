"""`milena container`: `milena node`, configured as Kafka's container image configures its node.

It does what the scripts of the image apache/kafka do (docker/jvm/launch, docker/resources/common-scripts,
KafkaDockerWrapper): arguments are variables, and ``KAFKA_*`` variables override a mounted ``server.properties``.
Without such a file they override a default configuration, unless they say what kind of node it is: then they are the
whole configuration. (In Kafka's image, any variable replaces the defaults.) ``/etc/kafka/docker/run`` of Milena's image
runs this.
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

    from milena.config.sources import Settings

MOUNTED = "/mnt/shared/config/server.properties"
DEFAULTS = "/etc/kafka/docker/server.properties"
DATA = "/var/lib/kafka/data"
METRICS_VARIABLE = "MILENA_METRICS_PORT"
METRICS_PORT = "9404"
OWN_ADDRESS_LIMIT = "60"
DECIDING = ("process.roles", "node.id", "broker.id", "listeners")
"""Keys that say what kind of node it is."""
DECIDING_PREFIXES = ("controller.", "zookeeper.")
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
"""The levels of log4j, and Milena's nearest levels."""

COMMAND = CommandLine(
    "container",
    "Run one node in the foreground, configured as Kafka's container image configures its node:\n"
    f"{MOUNTED} if it exists, else a default configuration unless\n"
    "variables set the node's id, roles, listeners or controller, and then KAFKA_* variables. Data is in\n"
    f"{DATA} unless log.dirs says otherwise. /metrics, /health and /ready are on\n"
    f"MILENA_METRICS_PORT (default: {METRICS_PORT}). MILENA_OWN_ADDRESS_LIMIT (default: {OWN_ADDRESS_LIMIT}) is\n"
    "--own-address-limit of `milena node`, MILENA_LOG_FORMAT (text or json) the form of log lines. With MILENA_LAB,\n"
    "a folder outside of log.dirs, `milena lab` in the container controls the node, for tests. Milena's image runs\n"
    "this command.",
    positionals=[Positional("NAME=VALUE", "variables that override those of the environment", many=True)],
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
        del os.environ["KAFKA_ADVERTISED_LISTENERS"]  # compose files set a variable to "" where it should be unset
    file = configuration_file(os.environ)
    content = "" if file is None else read(file)
    sys.stderr.write(f"milena: {used(os.environ, file)}\n")
    from milena.commands import node

    try:
        os.environ.update(implied(os.environ, content, defaults=file == DEFAULTS))
        both = settings(os.environ, content)
        check_advertised(both)
        check_folders(both)
    except UserError as error:
        given = unresolved(os.environ, content)
        raise node.with_notes(without_values(error, given), node.near_misses(given)) from None
    return node.main([*([] if file is None else [file]), *options(os.environ)])


def end_by_sigterm() -> None:
    """Let SIGTERM end the process until the node installs its own handler: the kernel ignores the default action for
    the first process of a container. /etc/kafka/docker/run blocks the signal until here."""
    signal.signal(signal.SIGTERM, _ended)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _ended(number: int, _frame: object) -> None:
    os.write(2, b"milena: ended by SIGTERM before the node was started\n")
    os._exit(128 + number)


def variables(arguments: Sequence[str]) -> dict[str, str]:
    """Parse arguments NAME=VALUE. Raises UsageError."""
    found = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name:
            raise UsageError(f"milena container takes variables as NAME=VALUE, not {argument!r}")
        found[name] = value
    return found


def warn_of(environment: Mapping[str, str]) -> None:
    """Print a warning for each variable of Kafka's image that is set but has no effect."""
    idle = [name for name in WITHOUT_EFFECT if environment.get(name)]
    if idle:
        verb = "has" if len(idle) == 1 else "have"
        text = f"milena: {' and '.join(idle)} {verb} no effect: KAFKA_LOG4J_ROOT_LOGLEVEL sets the level of all logs\n"
        sys.stderr.write(text)


def configuration_file(environment: Mapping[str, str], mounted: str = MOUNTED, defaults: str = DEFAULTS) -> str | None:
    """Return the configuration file to use, or None if the environment has the whole configuration. An empty mounted
    file is ignored. Raises UserError if it cannot be read."""
    from milena.config.sources import from_environment

    if os.path.lexists(mounted) and read(mounted).strip():
        return mounted
    # Variables of Bitnami's image are another configuration as a whole, too: an error says what to write instead.
    keys = [key.removeprefix("cfg.") for key in from_environment(environment)]
    return None if any(key in DECIDING or key.startswith(DECIDING_PREFIXES) for key in keys) else defaults


def used(environment: Mapping[str, str], file: str | None) -> str:
    """Return the sentence that says where the configuration comes from."""
    from milena.config.sources import from_environment

    count = len(from_environment(environment))
    variables = f"{count} KAFKA_* variable{'' if count == 1 else 's'}"
    if file is None:
        return f"the configuration is {variables}"
    default = ", the default configuration" if file == DEFAULTS else ""
    return f"the configuration is {file}{default}{f', and {variables}' if count else ''}"


def read(file: str) -> str:
    """Return the content of a file. Raises UserError."""
    try:
        with open(file, encoding="latin-1") as opened:
            return opened.read()
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None


def unresolved(environment: Mapping[str, str], file: str) -> Settings:
    """Return the settings of the file's content, overridden by the variables. Raises UserError."""
    from milena.config.sources import from_environment, from_properties
    from milena.config.values import ConfigError

    try:
        return from_properties(file.encode("latin-1"), MOUNTED) | from_environment(environment)
    except ConfigError as error:
        raise UserError(str(error)) from None


def settings(environment: Mapping[str, str], file: str) -> dict[str, str]:
    """Return these settings with the values of config providers. Raises UserError."""
    from milena.config.providers import resolve
    from milena.config.values import ConfigError

    try:
        found = resolve(unresolved(environment, file))
    except ConfigError as error:
        raise UserError(str(error)) from None
    return {key: setting.value for key, setting in found.items()}


def without_values(error: UserError, given: Settings) -> UserError:
    """Return the error with variables in place of the values of config providers."""
    from milena.config.providers import hidden_in, hide, resolve
    from milena.config.values import ConfigError

    try:
        return UserError(hide(str(error), hidden_in(resolve(given))))
    except ConfigError:
        return error


def implied(environment: Mapping[str, str], file: str, *, defaults: bool = False) -> dict[str, str]:
    """Return the values of variables that are not set but follow from those that are. ``file``: the content of the
    configuration file; ``defaults``: it is the default one, which keeps its listeners under another advertised
    address."""
    from milena.config.sources import from_environment

    own, both, added = from_environment(environment), settings(environment, file), {}
    roles = both.get("process.roles", "")
    if (
        "listeners" not in own
        and not defaults
        and roles.strip() != "controller"
        and "advertised.listeners" in own
        and both["advertised.listeners"]
    ):
        listening = re.sub("://[^:]*:", "://0.0.0.0:", both["advertised.listeners"])
        both["listeners"] = added["KAFKA_LISTENERS"] = listening
    if "log.dirs" not in both and "log.dir" not in both:
        added["KAFKA_LOG_DIRS"] = DATA
    if "controller.quorum.voters" not in both and "controller.quorum.bootstrap.servers" not in both:
        voter = only_voter(both)
        if voter is not None:
            added["KAFKA_CONTROLLER_QUORUM_VOTERS"] = voter
    return added


def only_voter(settings: Mapping[str, str]) -> str | None:
    """Return controller.quorum.voters for a combined node that names no voters: the node itself; None for other nodes.
    Kafka's image refuses to start then."""
    roles = {role.strip() for role in settings.get("process.roles", "").split(",")}
    name = re.escape(settings.get("controller.listener.names", "").split(",")[0].strip())
    listener = re.search(rf"(?:^|,)\s*{name}://[^,]*:(\d+)", settings.get("listeners", ""), re.IGNORECASE)
    if roles != {"broker", "controller"} or not name or listener is None:
        return None
    return f"{settings.get('node.id', '')}@localhost:{listener[1]}"


def check_advertised(settings: Mapping[str, str]) -> None:
    """Raise UserError if a controller-only node advertises listeners that it does not have. Kafka's image rejects all
    advertised listeners of such a node; Kafka itself accepts those of the controller since KIP-853."""
    if settings.get("process.roles", "").strip() != "controller":
        return
    own = {name.strip().upper() for name in settings.get("controller.listener.names", "").split(",")}
    advertised = [one.partition("://")[0].strip() for one in settings.get("advertised.listeners", "").split(",")]
    strange = [name for name in advertised if name and name.upper() not in own]
    if strange:
        raise UserError(
            f"advertised.listeners: {' and '.join(strange)} are not listeners of this controller, which has only the "
            "listeners of controller.listener.names"
        )


def check_folders(settings: Mapping[str, str]) -> None:
    """Raise UserError if no log directory can be used, or the tier's folder cannot, because a volume is missing or
    belongs to another user."""
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
    """Return the reason why this process's user cannot store files in a folder; None if it can. The folder is created
    if it is missing."""
    user = os.geteuid()
    try:
        os.makedirs(folder, exist_ok=True)
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            return f"{folder} is mounted read-only"
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return f"{folder} belongs to user {os.stat(folder).st_uid}; user {user} of this process may not write there"
    except PermissionError:
        return f"{folder} does not exist, and user {user} of this process may not create it: mount a volume there"
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return None


def checked(environment: Mapping[str, str], name: str, default: str, convert: Callable[[str], object]) -> str:
    """Return a variable's value. Raises UserError, whose message names the variable and not the option of `milena node`
    to which it is converted."""
    value = environment.get(name) or default
    try:
        convert(value)
    except ValueError as error:
        raise UserError(f"{name}: {value!r} is {error}") from None
    return value


def options(environment: Mapping[str, str]) -> list[str]:
    """Return the options of `milena node` that follow from the variables. Raises UserError."""
    from milena.runtime.logging import FORMAT, FORMATS

    port = checked(environment, METRICS_VARIABLE, METRICS_PORT, port_number)
    found = ["--control", port, "--control-host", "0.0.0.0", "--kafka-line"]
    log_format = environment.get(FORMAT)
    if log_format not in (None, "", *FORMATS):
        raise UserError(f"{FORMAT}: {log_format!r} is not one of {', '.join(FORMATS)}")
    if environment.get(LAB):
        found += ["--lab", environment[LAB]]
    found += ["--own-address-limit", checked(environment, "MILENA_OWN_ADDRESS_LIMIT", OWN_ADDRESS_LIMIT, seconds)]
    level = environment.get("KAFKA_LOG4J_ROOT_LOGLEVEL")
    if level:
        if level.upper() not in LEVELS:
            raise UserError(f"KAFKA_LOG4J_ROOT_LOGLEVEL: {level!r} is not one of {', '.join(LEVELS)}")
        found += ["--log-level", LEVELS[level.upper()]]
    return found
