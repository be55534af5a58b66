"""What Spark's Java process and its Python workers write to standard error: banners, settings, stack traces. Of these
lines the user of a command needs the pipeline's own warnings only."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from milena.runtime.printable import printable

KEPT: Final = 3
"""The number of last lines that are kept for the error if the process does not start."""
IRRELEVANT: Final = ("\tat ", "\t...", "WARNING:")
"""Beginnings of lines that explain nothing."""
OF_EVENT: Final = frozenset({"timestamp", "level", "component", "event"})


class JavaOutput:
    """Reads the standard error of processes that are started in ``diverted``, and shows the pipeline's warnings."""

    def __init__(self) -> None:
        self._last: deque[str] = deque(maxlen=KEPT)
        self._reader: threading.Thread | None = None

    @contextmanager
    def diverted(self) -> Iterator[None]:
        """Processes that are started in this context write to a pipe in place of standard error, also later."""
        read_end, write_end = os.pipe()
        here = os.dup(2)
        os.dup2(write_end, 2)
        os.close(write_end)
        self._reader = threading.Thread(target=self._read, args=(read_end, here), daemon=True, name="java output")
        self._reader.start()
        try:
            yield
        finally:
            os.dup2(here, 2)

    def _read(self, read_end: int, here: int) -> None:
        with open(read_end, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if text := shown(line):
                    os.write(here, f"{text}\n".encode())
                elif line.strip() and not line.startswith(IRRELEVANT):
                    self._last.append(line.strip())
        os.close(here)

    def reason(self) -> str:
        """Return the last lines of processes that have ended; "" if there are none."""
        if self._reader is not None:
            self._reader.join(5)
        return printable(" ".join(self._last))


def shown(line: str) -> str:
    """Return the text to show for a line; "" for lines that are not the pipeline's."""
    if not line.startswith("{"):
        return ""
    try:
        event = json.loads(line)
    except ValueError:
        return ""
    if not isinstance(event, dict) or not {"component", "event", "level"} <= event.keys():
        return ""
    values = ", ".join(f"{value}" for name, value in event.items() if name not in OF_EVENT)
    return printable(f"{event['level']}: {event['event']}" + (f": {values}" if values else ""))
