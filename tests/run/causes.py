"""Why a command has failed, in one line for each cause: a reader of the end of a run sees all of them there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

MOST: Final = 20
"""More causes of one command than this are counted, not listed."""
CAUSE: Final = re.compile(r"(?:FAILED|ERROR) tests/|(?:failed|fault|seed \d+ failed): |\S+:\d+: error: ")
"""A line in which a program, pytest or mypy names a cause."""
_FRAME: Final = " +-=_"


def causes(code: int, failed: Sequence[str], printed: str) -> list[str]:
    """The causes of a failure: the failed tests if there are any, else the lines of the output that name one, else the
    exit code with the last line. ``code`` is negative if a signal ended the command, as for ``subprocess``."""
    found = list(failed) or _named(printed) or [_ended(code, printed)]
    return found if len(found) <= MOST else [*found[:MOST], f"and {len(found) - MOST} more"]


def notices(flaky: Sequence[str], failed: Sequence[str]) -> list[str]:
    """The lines that end the output of a run."""
    return [
        *(f"flaky: {name} failed, then passed alone" for name in flaky),
        *(f"failed: {cause.removeprefix('failed: ')}" for cause in failed),
    ]


def _named(printed: str) -> list[str]:
    """Without repetitions: a program may have run twice."""
    return list(dict.fromkeys(line.strip() for line in printed.splitlines() if CAUSE.match(line.strip())))


def _ended(code: int, printed: str) -> str:
    how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    # What make adds, and pytest's frames, say nothing.
    lines = [line.strip(_FRAME) for line in printed.splitlines() if not line.startswith("make:")]
    return ", ".join([how, *[line for line in lines if line][-1:]])
