"""What happens in a simulated run, line by line, with the virtual time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable


class Trace:
    """Lines of one run. ``listener`` gets each as it comes."""

    def __init__(self, listener: Callable[[str], object] | None = None) -> None:
        self.lines: list[str] = []
        self._listener = listener

    def note(self, text: str) -> None:
        line = f"{asyncio.get_running_loop().time():11.6f} {text}"
        self.lines.append(line)
        if self._listener is not None:
            self._listener(line)

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()
