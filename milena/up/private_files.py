"""Files that may contain credentials of a remote store: readable by their owner only, and replaced atomically."""

from __future__ import annotations

import os

SCRATCH = ".tmp"
"""The ending of a file that is not finished."""


def replace(path: str, text: str) -> None:
    """Replace ``path`` by a file with mode 0600. Raises OSError."""
    scratch = f"{path}{SCRATCH}"
    fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w") as file:
        os.fchmod(fd, 0o600)  # the file may remain from a killed process, or the umask may remove more bits
        file.write(text)
    os.replace(scratch, path)


def make_folder(path: str) -> None:
    """Make a folder that only its owner may enter, unless it exists. Raises OSError."""
    os.makedirs(path, mode=0o700, exist_ok=True)
