"""What a user did wrong, or what stands in the way: one clear sentence and an exit code, never a stack trace."""

from __future__ import annotations


class UserError(Exception):
    """The message is shown as it is, behind ``milena:``."""

    exit_code = 1


def reason_of(error: OSError) -> str:
    """What the system said, without its error number: ``path: No such file or directory``."""
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename is not None else text


class UsageError(UserError):
    """The command line itself is wrong."""

    exit_code = 2
