"""`milena scripts`: writes Kafka's scripts into a folder."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from milena.command_line.errors import UserError, reason_of
from milena.command_line.options import CommandLine, Positional
from milena.command_line.table import say
from milena.scripts.table import MODULES

INSTALL = CommandLine(
    "scripts",
    "Write Kafka's scripts (kafka-topics.sh and others) into a folder. They need no JVM: each runs Milena with this\n"
    "Python. Each is also there without .sh. Existing files of these names are replaced.",
    positionals=[Positional("FOLDER", "is created if it is missing")],
    examples=["milena scripts bin && bin/kafka-topics.sh --bootstrap-server localhost:9092 --list"],
)


def main(arguments: Sequence[str]) -> int:
    values = INSTALL.parse(arguments)
    if values.help:
        print(INSTALL.help())
        return 0
    try:
        os.makedirs(values.folder, exist_ok=True)
        for script in MODULES:
            for name in (f"{script}.sh", script):
                write(os.path.join(values.folder, name), script)
    except OSError as error:
        raise UserError(reason_of(error)) from None
    say(f"{values.folder}: {len(MODULES)} scripts")
    return 0


def write(path: str, script: str) -> None:
    """Write one script. Raises OSError."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m milena.scripts {script} "$@"\n')
    os.chmod(path, 0o755)
