"""``kafka-server-start``: runs a node in the foreground, as `milena node` does, from its file alone.

In the image, which sets MILENA_METRICS_PORT, it serves /metrics and /health, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from milena.command_line.errors import UserError
from milena.scripts.common.failures import ScriptError, failure_of

USAGE = "USAGE: kafka-server-start.sh [-daemon] server.properties [--override property=value]*"


def main(arguments: Sequence[str]) -> int:
    """Run the node. Raises ScriptError."""
    if arguments and arguments[0] == "-daemon":
        return start_in_background(arguments[1:])
    if not arguments or "--help" in arguments or arguments[0].startswith("-"):
        print(USAGE)
        return 1
    file, *rest = arguments
    words = []
    while rest:
        word = rest.pop(0)
        if word != "--override" or not rest:
            raise ScriptError(f"Found non argument parameters: {word}")
        words += [word, rest.pop(0)]
    from milena.commands import container, node

    container.end_by_sigterm()
    if container.METRICS_VARIABLE in os.environ:
        words += container.options(os.environ)
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        del os.environ[name]  # only /etc/kafka/docker/run reads them
    try:
        return node.main([file, *words])
    except UserError as error:
        print(*(f"milena: {line}" for line in (error, *getattr(error, "__notes__", ()))), sep="\n", file=sys.stderr)
        return error.exit_code


def start_in_background(arguments: Sequence[str]) -> int:
    """Start this script in a process of its own, which writes to kafkaServer.out in LOG_DIR (by default ``logs``)."""
    folder = os.environ.get("LOG_DIR") or "logs"
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "kafkaServer.out"), "ab") as log:
            subprocess.Popen(
                [sys.executable, "-P", "-m", "milena.scripts", "kafka-server-start", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise failure_of(error) from None
    return 0
