"""`milena config`: check a configuration without starting a node."""

from __future__ import annotations

import os
from collections.abc import Sequence

from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Option, Positional, nearest
from milena.commands.node import STRICT, checked, read_settings
from milena.config.broker_config import unknown_keys
from milena.config.values import ConfigError

CHECK = CommandLine(
    "config check",
    "Check the configuration of a node without starting it. Exit code 1: the node would not start, or keys are\n"
    "unknown, which a starting node only warns of.",
    options=[
        Option("--environment", "check the KAFKA_* variables, too; they override the file"),
        Option("--override", "a configuration value, by Kafka's key", "K=V", many=True),
    ],
    positionals=[Positional("FILE", "a server.properties; without it the KAFKA_* variables", optional=True)],
    examples=["milena config check server.properties", "KAFKA_NODE_ID=1 ... milena config check"],
)


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: milena config COMMAND [options]\n\n  check  {CHECK.about.splitlines()[0]}")
        return 0
    if arguments[0] != "check":
        raise UsageError(f"milena config has no {arguments[0]}{nearest(arguments[0], ['check'])}; it has check")
    return check(arguments[1:])


def check(arguments: Sequence[str]) -> int:
    """Print what is wrong and what has no effect. Return the exit code. Raises UserError."""
    values = CHECK.parse(arguments)
    if values.help:
        print(CHECK.help())
        return 0
    use_environment = values.environment or values.file is None
    settings = read_settings(values, use_environment=use_environment)
    unknown = unknown_keys(settings)
    for key in unknown:
        print(f"unknown: {key}")
    try:
        config = checked(settings, {name: value for name, value in os.environ.items() if name != STRICT})
    except ConfigError as error:
        raise UserError(str(error)) from None
    for warning in config.warnings[1 if unknown else 0 :]:
        print(warning)
    name = values.file or "the environment"
    if unknown:
        raise UserError(f"{name}: {len(unknown)} unknown key{'s' if len(unknown) > 1 else ''}")
    print(f"{name}: valid, node {config.node_id} as {' and '.join(sorted(config.roles))}")
    return 0
