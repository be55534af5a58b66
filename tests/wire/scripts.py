"""Kafka's scripts as a person runs them, but within this process: each needs a tenth of a second then."""

from __future__ import annotations

import io
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from milena.scripts.running import main


class Ran(NamedTuple):
    """A script's exit code and output."""

    code: int
    out: str
    err: str


def script(name: str, *arguments: str, stdin: str = "") -> Ran:
    """Run a script to its end, with any exit code. It must not print a stack trace."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    former = sys.stdin
    with tempfile.TemporaryFile("w+", encoding="utf-8") as source, redirect_stdout(out), redirect_stderr(err):
        source.write(stdin)
        source.seek(0)
        sys.stdin = source
        try:
            code = main(name, arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            sys.stdin = former
    said = [stream.buffer.getvalue().decode() for stream in (out, err) if isinstance(stream.buffer, io.BytesIO)]
    assert "Traceback" not in said[1], said[1]
    return Ran(code, *said)


def printed(name: str, *arguments: str, stdin: str = "") -> str:
    """Run a script that must succeed; return its standard output."""
    ran = script(name, *arguments, stdin=stdin)
    assert ran.code == 0, ran
    return ran.out
