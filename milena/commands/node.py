"""`milena node`: one process as broker, controller or both, configured with Kafka's keys.

The values come from a properties file, then `KAFKA_*` variables (as Kafka's image maps them), then `--override`; later
ones override earlier ones. A node that `milena up` starts ignores the variables, since its file has the whole
configuration.
"""

from __future__ import annotations

import gc
import os
import sys

from milena.command_line.errors import UserError
from milena.command_line.options import CommandLine, Option, Positional, port_number, seconds
from milena.up.layout import ClusterDir, cluster_of
from milena.up.processes import PARENT_FD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from milena.command_line.options import Values
    from milena.config.node_config import NodeConfig
    from milena.config.sources import Settings

SHOW_WARNINGS = ("debug", "info", "warning")
"""The log levels at which warnings are logged."""
STRICT = "MILENA_STRICT_CONFIG"
"""The variable that makes unknown keys an error."""
START_UP_THRESHOLDS = (100_000, 50, 100)
"""The thresholds of Python's garbage collection during start-up, which creates many objects and no garbage;
``settle_memory`` resets them."""

COMMAND = CommandLine(
    "node",
    "Run one node in the foreground: a broker, a controller or both, as process.roles says. An empty log directory is\n"
    "formatted. When the node serves, one line `ready node=ID LISTENER://HOST:PORT ...` goes to standard output.",
    options=[
        Option("--override", "a configuration value, by Kafka's key", "K=V", many=True),
        Option("--control", "serve /metrics, /health and /ready over HTTP on this port", "PORT", convert=port_number),
        Option("--control-host", "the address of --control", "HOST", default="127.0.0.1"),
        Option(
            "--own-address-limit",
            "stop a broker with several listeners that cannot connect within S to the address that it "
            "advertises to other\n"
            "brokers (a combined node prints a warning); 0 disables the check",
            "SECONDS",
            default=0,
            convert=seconds,
        ),
        Option("--cluster-id", "the id of a new cluster (or CLUSTER_ID in the environment)", "ID"),
        Option("--feature", "a feature's level for a new cluster", "NAME=LEVEL", many=True),
        Option("--release-version", "the metadata version of a new cluster, as in 4.4", "VERSION"),
        Option("--lab", "for tests: open a socket in this folder for `milena lab`", "DIR"),
        Option("--kafka-line", "print also the line `... Kafka Server started ...`, for which tools of Kafka wait"),
        Option("--log-level", "debug, info, warning, error or critical", "LEVEL", default="info"),
    ],
    positionals=[Positional("FILE", "a server.properties; without it only the environment is used", optional=True)],
    examples=[
        "milena node server.properties --override num.partitions=6",
        "milena node milena-data/broker-1/server.properties",
        "KAFKA_NODE_ID=1 KAFKA_PROCESS_ROLES=broker,controller ... milena node --control 8080",
    ],
)


def main(arguments: Sequence[str]) -> int:
    values = COMMAND.parse(arguments)
    if values.help:
        print(COMMAND.help())
        return 0
    cluster = None if values.file is None else cluster_of(values.file)
    is_child = PARENT_FD in os.environ
    if cluster is not None and not is_child:
        join_supervisor(cluster)

    gc.set_threshold(*START_UP_THRESHOLDS)
    from milena.runtime.lean_import import lean_import

    with lean_import():
        from milena.commands.serving import NodeProcess
        from milena.config.values import ConfigError
        from milena.runtime.logging import configure
        from milena.runtime.process import run_node

    try:
        configure(level=values.log_level)
    except ValueError as error:
        raise UserError(f"--log-level: {error}") from None
    settings = read_settings(values, use_environment=cluster is None)
    misses = near_misses(settings)
    report(misses)
    try:
        config = checked(settings, os.environ)
        process = NodeProcess(config, values, cluster, is_child=is_child)
    except ConfigError as error:
        raise with_notes(UserError(str(error)), misses) from None
    except UserError as error:
        raise with_notes(error, misses) from None
    if config.unprotected and values.log_level not in SHOW_WARNINGS:
        report([config.unprotected])
    code = run_node(process.run)
    if code:
        report(misses)
    return code


def near_misses(settings: Settings) -> list[str]:
    """Return messages about misspelt keys of files and variables, which are printed whatever the log level is."""
    from milena.config.broker_config import unknown_keys

    return [key.error for key in unknown_keys(settings) if key.near_miss and not settings[key.name].typed]


def report(lines: Sequence[str]) -> None:
    """Print lines to standard error, as errors are printed."""
    for line in lines:
        print(f"milena: {line}", file=sys.stderr, flush=True)


def with_notes(error: UserError, lines: Sequence[str]) -> UserError:
    """Return the error with lines that are printed after its message: a misspelt key may have caused it."""
    for line in lines:
        error.add_note(line)
    return error


def checked(settings: Settings, environment: Mapping[str, str]) -> NodeConfig:
    """Return the node's configuration. Raises ConfigError naming source and key, also for an authorizer, and UserError
    for a listener whose protocol is not supported."""
    from milena.config.node_config import NodeConfig
    from milena.config.protection import check_authorizer
    from milena.config.providers import hide
    from milena.config.unknown_keys import listed
    from milena.config.values import ConfigError

    config = NodeConfig(settings)
    if config.unknown and environment.get(STRICT, "").strip().lower() not in ("", "0", "false"):
        raise ConfigError(f"{STRICT} is set, and keys are unknown: {listed(config.unknown)}")
    check_authorizer(settings, environment)
    # A broker connects to the controller by the first name, which need not be a listener of its own.
    for name in (*(listener.name for listener in config.listeners), *config.controller_listener_names[:1]):
        if config.security_protocols[name] != "PLAINTEXT":
            text = f"listener {name} has protocol {config.security_protocols[name]}, which is not supported yet: "
            raise UserError(hide(f"{text}only PLAINTEXT is (listener.security.protocol.map)", config.hidden))
    return config


def read_settings(values: Values, *, use_environment: bool) -> Settings:
    """Return the node's settings: of the file, then the environment, then --override. Raises UserError for an
    unreadable file or a malformed line."""
    from milena.config.sources import from_environment, from_overrides, from_properties
    from milena.config.values import ConfigError

    settings: Settings = {}
    try:
        if values.file is not None:
            with open(values.file, "rb") as file:
                settings |= from_properties(file.read(), values.file)
        if use_environment:
            settings |= from_environment(os.environ)
        return settings | from_overrides(values.override)
    except ConfigError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        cluster = cluster_of(values.file)
        missing = cluster is not None and isinstance(error, FileNotFoundError)
        name = os.path.basename(os.path.dirname(os.path.abspath(values.file)))
        hint = f"; `milena up` and `milena lab {name} start` write the file again" if missing else ""
        raise UserError(f"{values.file}: {error.strerror}{hint}") from None


def join_supervisor(cluster: ClusterDir) -> None:
    """Let a node that a user has started end when the `milena up` of its directory ends, if one runs, as the nodes that
    `milena up` has started do."""
    from milena.up import channel, locks

    if locks.is_held(cluster.lock):
        os.environ[PARENT_FD] = str(channel.watch_supervisor(cluster))
