"""Files that may hold keys of a remote store: for their owner alone, and written whole or not at all."""

from __future__ import annotations

import os


def replace(path: str, text: str) -> None:
    """Put a file with mode 0600 in the place of ``path``. Raises OSError."""
    scratch = f"{path}.tmp"
    fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w") as file:
        os.fchmod(fd, 0o600)  # it may be there since a start that was killed, or a umask take more away
        file.write(text)
    os.replace(scratch, path)
