"""Errors that a user can act on: one line and an exit code, never a stack trace."""

from __future__ import annotations


class UserError(Exception):
    """The message is printed after ``milena:``."""

    exit_code = 1


def reason_of(error: OSError) -> str:
    """Return the system's message without the errno: ``path: No such file or directory``."""
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename is not None else text


class UsageError(UserError):
    """The command line itself is wrong."""

    exit_code = 2
