"""The Java process that hosts Kafka's own clients (``java/ChaosClients.java``), and its requests and answers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.oracle import kafka

SOURCE = Path(__file__).parent / "java" / "ChaosClients.java"
HEAP = "128m"
LONGEST = 64 * 1024 * 1024
"""The limit of an answer, in bytes. The longest answers are the records of a poll."""
GONE = "the Java process has ended"
STOP = 5.0
"""Seconds after which a process that does not end is killed."""


@cache
def compiled() -> Path:
    """Compile the classes if needed; return their folder, beside the jars in the user's cache. Raises NoKafka."""
    jars = kafka.jars()
    if shutil.which("javac") is None:
        raise kafka.NoKafka("javac is not installed")
    mark = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    folder = jars.parent / f"chaos-clients-{kafka.VERSION}-{mark}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=jars.parent) as unfinished:
            command = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", f"{unfinished}/classes", str(SOURCE)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise kafka.NoKafka(f"javac ended with {done.returncode}: {done.stderr}")
            with contextlib.suppress(OSError):  # another process has compiled them meanwhile
                Path(unfinished, "classes").rename(folder)
    return folder


class Jvm:
    """A Java process. It ends with ``stop``, and when this process ends, because its standard input is closed then."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls) -> Jvm:
        classes, jars = await asyncio.to_thread(lambda: (compiled(), kafka.jars()))
        options = [*kafka.QUICK, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-XX:+ExitOnOutOfMemoryError"]
        command = ["java", f"-Xmx{HEAP}", *options, "-cp", f"{classes}:{jars}/*", SOURCE.stem]
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=LONGEST))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def gone(self) -> bool:
        return self._reading.done()

    def ask(self, **request: Any) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """Send a request; return its number and its answer, which has ``gone`` if the process ended.

        The caller limits the number of requests in flight.
        """
        number = next(self._numbers)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self.gone:
            future.set_result({"error": GONE, "code": -1, "gone": True})
            return number, future
        self._asked[number] = future
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, **request}).encode() + b"\n")
        return number, future

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                answer: dict[str, Any] = json.loads(line)
                future = self._asked.pop(answer["id"], None)
                if future is not None and not future.done():
                    future.set_result(answer)
        finally:
            for future in self._asked.values():
                if not future.done():
                    future.set_result({"error": GONE, "code": -1, "gone": True})
            self._asked.clear()

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await asyncio.wait([self._reading])
