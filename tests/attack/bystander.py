"""Another client of the attacked node: a thread that sends requests continuously and measures the longest wait."""

from __future__ import annotations

import struct
import threading
import time
from types import TracebackType

from tests.wire.raw import api_versions, connected, receive_frame

PAUSE = 0.02


class Bystander:
    """Sends ApiVersions requests over one connection until it is stopped. ``longest``: the slowest answer, in s."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bystander")
        self.longest = 0.0
        self.answers = 0
        self.failure: str | None = None

    def _run(self) -> None:
        try:
            with connected(self._address) as plain:
                plain.settimeout(120)
                while not self._stopping.is_set():
                    begun = time.monotonic()
                    plain.sendall(api_versions(self.answers))
                    if receive_frame(plain)[:4] != struct.pack(">i", self.answers):
                        raise ConnectionError("an answer to another request")
                    self.longest = max(self.longest, time.monotonic() - begun)
                    self.answers += 1
                    self._stopping.wait(PAUSE)
        except (OSError, ConnectionError) as error:
            self.failure = f"after {self.answers} answers: {error or type(error).__name__}"

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
