"""Files that a command writes for its user."""

from __future__ import annotations

from pathlib import Path

from milena.command_line.errors import UserError, reason_of


def check_writable(file: str | Path) -> None:
    """Check, before the work of a command, that a file can be written. It stays as it is. Raises UserError."""
    path = Path(file)
    existed = path.exists()
    try:
        path.open("a").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise _cannot_write(file, error) from None


def write_text(file: str | Path, text: str) -> None:
    """Write a file. Raises UserError."""
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _cannot_write(file, error) from None


def _cannot_write(file: str | Path, error: OSError) -> UserError:
    return UserError(f"cannot write {file}: {reason_of(error)}")
