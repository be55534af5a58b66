"""Files that a command writes for its user."""

from __future__ import annotations

from pathlib import Path

from milena.command_line.errors import UserError, reason_of


def check_writable(file: str | Path) -> None:
    """Check, before the work of a command, that a file can be written: it is empty then. Raises UserError."""
    write_text(file, "")


def write_text(file: str | Path, text: str) -> None:
    """Write a file. Raises UserError."""
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {file}: {reason_of(error)}") from None
