"""Runs one script: imports its module, prints its errors and returns its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from milena.runtime.lean_import import lean_import
from milena.scripts.common.failures import ScriptError
from milena.scripts.common.options import UsageError
from milena.scripts.table import MODULES


def main(name: str, arguments: Sequence[str]) -> int:
    """Run a script of Kafka, ``kafka-topics`` or ``kafka-topics.sh``, also with its path. Return its exit code, which
    is 0 or 1."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # the caller has closed it
            setattr(sys, stream, open(os.devnull, mode))  # noqa: SIM115 - for the whole process
    module = MODULES.get(os.path.basename(name).removesuffix(".sh"))
    if module is None:
        print(f"no script {name}; there are {', '.join(MODULES)}", file=sys.stderr)
        return 1
    try:
        with lean_import():
            body = import_module(f"milena.scripts.{module}").main
        code: int = body(arguments)
        sys.stdout.flush()
    except UsageError as error:
        print(f"{error.message}\n{error.parser.help()}", file=sys.stderr)
        return 1
    except ScriptError as error:
        sys.stdout.flush()
        print(error.full, file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has exited. Java's tools ignore that, so it is not an error here either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # of standard output: those of the client are ScriptErrors
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"cannot write: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code
