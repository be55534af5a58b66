"""kcat, the command-line client with librdkafka."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence

from tests.wire.clients import Record
from tests.wire.clients.halfway import HalfRead, Halfway

LIMIT = 90


class KcatClient:
    """Keys and values must be text, because kcat reads lines. Its exit code acknowledges all records or none."""

    name = "kcat"
    said = ""
    """What the last producer has logged: retries, drained partitions, changes of its epoch."""

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        halfway: Callable[[], None] = lambda: None,
    ) -> list[int]:
        settings = {
            "enable.idempotence": "true",
            "linger.ms": "2",
            "batch.num.messages": "200",
            "reconnect.backoff.max.ms": "200",
            "retry.backoff.ms": "50",
        }
        command = ["kcat", "-E", "-b", bootstrap, "-P", "-t", topic, "-z", codec, "-K", "\t", "-d", "eos"]
        command += [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
        middle = Halfway(2, halfway)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as kcat:
            assert kcat.stdin is not None and kcat.stderr is not None
            errors: list[bytes] = []
            reader = threading.Thread(target=errors.extend, args=(kcat.stderr,))
            reader.start()
            for index, (key, value) in enumerate(records):
                if index == len(records) // 2:
                    kcat.stdin.flush()
                    middle.reached(1)
                kcat.stdin.write((key or b"") + b"\t" + (value or b"") + b"\n")
            middle.join()
            kcat.stdin.close()
            code = kcat.wait(LIMIT)
            reader.join()
        self.said = b"".join(errors).decode()
        assert code == 0, self.said
        return list(range(len(records)))

    def consume(
        self, bootstrap: str, topic: str, count: int, *, group: str, halfway: Callable[[], None] = lambda: None
    ) -> list[tuple[int, int, Record]]:
        command = ["kcat", "-b", bootstrap, "-c", str(count), "-J", "-u", "-X", "auto.offset.reset=earliest"]
        command += ["-X", "check.crcs=true", "-G", group, topic]
        found: list[tuple[int, int, Record]] = []
        middle = HalfRead(count, halfway)
        with tempfile.TemporaryFile() as said, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said) as kcat:
            assert kcat.stdout is not None
            limit = threading.Timer(LIMIT, kcat.kill)
            limit.start()
            try:
                for line in kcat.stdout:
                    message = json.loads(line)
                    record = (text(message["key"]), text(message["payload"]))
                    found.append((message["partition"], message["offset"], record))
                    middle.reached(len(found))
                code = kcat.wait()
            finally:
                limit.cancel()
                kcat.kill()
            said.seek(0)
            assert code == 0, said.read().decode()
        return found


def text(value: str | None) -> bytes | None:
    return None if value is None else value.encode()
