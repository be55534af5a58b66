"""What a user did wrong, or what stands in the way: one clear sentence and an exit code, never a stack trace."""

from __future__ import annotations


class UserError(Exception):
    """The message is shown as it is, behind ``milena:``."""

    exit_code = 1


class UsageError(UserError):
    """The command line itself is wrong."""

    exit_code = 2
