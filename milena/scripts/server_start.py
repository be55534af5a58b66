"""``kafka-server-start``: runs a node in the foreground, as `milena node` does, from its file alone.

In the image, which sets MILENA_METRICS_PORT, it serves /metrics and /health, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from milena.command_line.errors import UserError
from milena.scripts.common.failures import ScriptError

USAGE = "USAGE: kafka-server-start.sh [-daemon] server.properties [--override property=value]*"


def main(arguments: Sequence[str]) -> int:
    """Run the node. Raises ScriptError."""
    if not arguments or "--help" in arguments or arguments[0].startswith("-"):
        if arguments and arguments[0] == "-daemon":
            raise ScriptError("-daemon is not supported: add & in the shell, or use `milena up --detach`")
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
