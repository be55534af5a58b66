"""Why an error was raised."""

from __future__ import annotations


def cause_of(error: BaseException) -> BaseException | None:
    """What ``error`` was raised from. Compiled code keeps no cause, only what was being handled."""
    return error.__cause__ or error.__context__
