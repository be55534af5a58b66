"""Kafka's own clients, all in one Java process, which starts with the first client and ends with the last.

The outcome of a record:

====================================================  =======  ====================================================
``send`` throws, or calls back before it returns      FAILED   it has not taken the record (too large, no metadata
                                                               within ``delivery``, no room, closed)
the callback has an exception for an error code       by the code (``outcomes``)
the callback has a ``TimeoutException``               UNKNOWN  the batch has expired, after any number of attempts
the callback has any other exception                  UNKNOWN  the producer was closed, or a fatal error came before
the process has ended                                 UNKNOWN
====================================================  =======  ====================================================

After an error the idempotent producer continues with a new producer epoch.

A commit that fails is UNKNOWN, because ``commitSync`` retries by itself. Changes of the admin client are sent
once (``retries`` 0); without an answer they are UNKNOWN.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from milena.lab.chaos.clients import ChaosTransformer, Got, Sent
from milena.lab.histories.events import ACKS_ALL, RequestOutcome
from milena.protocol.types import TopicPartition
from milena.testing.chaos_clients import outcomes
from milena.testing.chaos_clients.admin import Admin
from milena.testing.chaos_clients.bridge import AT_ONCE, Polling, Windows, new_name
from milena.testing.chaos_clients.limits import Limits
from tests.chaos.clients.jvm import Jvm

PAUSE = 0.1
"""Seconds to wait after a failed poll, because a poll can fail at once."""
LATE = 5.0
"""Seconds to wait for an answer beyond the limit that the client was given."""


class JavaClients:
    """Implements ``Clients``. Raises ``NoKafka`` with the reason where there is no Java."""

    name = "java"
    can = frozenset({"produce", "consume", "group", "admin"})
    own_epochs = True
    fences_members = True

    def __init__(self, bootstrap: str, limits: Limits = Limits()) -> None:  # noqa: B008  # it is frozen
        self._limits = limits
        self._host = _Host()
        self._common: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "request.timeout.ms": limits.request_ms,
            "socket.connection.setup.timeout.ms": limits.request_ms,
            "socket.connection.setup.timeout.max.ms": limits.request_ms,
            "reconnect.backoff.max.ms": 500,
            "enable.metrics.push": "false",
        }

    @property
    def processes(self) -> Sequence[int]:
        """Their process ids."""
        return [jvm.pid for jvm in self._host.inside]

    async def producer(self, *, acks: int, idempotent: bool) -> JavaProducer:
        settings = self._common | {
            "acks": acks,
            "enable.idempotence": str(idempotent).lower(),
            "linger.ms": 2,
            "delivery.timeout.ms": self._limits.delivery_ms,
            "max.block.ms": self._limits.delivery_ms,
            "buffer.memory": 16 * 1024 * 1024,
        }
        if acks != ACKS_ALL or not idempotent:
            settings["max.in.flight.requests.per.connection"] = 1  # else a retry could be written behind the next batch
        return JavaProducer(await self._host.make("producer", settings), self._limits)

    async def consumer(self, positions: Mapping[TopicPartition, int]) -> JavaConsumer:
        places = [[*partition, offset] for partition, offset in positions.items()]
        return JavaConsumer(
            await self._host.make("consumer", self._reading(), positions=places, topics=[]), self._limits
        )

    async def transactions(self, transactional_id: str, timeout: float) -> JavaTransactions:
        settings = self._common | {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(timeout * 1000),
            "linger.ms": 2,
            "delivery.timeout.ms": self._limits.delivery_ms,
            "max.block.ms": self._limits.request_ms,
            "buffer.memory": 16 * 1024 * 1024,
        }
        return JavaTransactions(await self._host.make("producer", settings), self._limits)

    async def committed_consumer(self, positions: Mapping[TopicPartition, int]) -> JavaConsumer:
        places = [[*partition, offset] for partition, offset in positions.items()]
        settings = self._reading() | {"isolation.level": "read_committed"}
        return JavaConsumer(await self._host.make("consumer", settings, positions=places, topics=[]), self._limits)

    async def transformer(self, group: str, topics: Sequence[str]) -> JavaMember:
        return await self._member(group, topics, {"isolation.level": "read_committed"})

    async def member(self, group: str, topics: Sequence[str]) -> JavaMember:
        return await self._member(group, topics, {})

    async def _member(self, group: str, topics: Sequence[str], more: Mapping[str, str]) -> JavaMember:
        settings = {
            **self._reading(),
            **more,
            "group.id": group,
            "group.protocol": "classic",
            "session.timeout.ms": self._limits.session_ms,
            "heartbeat.interval.ms": self._limits.session_ms // 6,
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
        }
        return JavaMember(await self._host.make("consumer", settings, positions=[], topics=list(topics)), self._limits)

    async def admin(self) -> JavaAdmin:
        settings = self._common | {"retries": 0, "default.api.timeout.ms": self._limits.request_ms}
        return JavaAdmin(await self._host.make("admin", settings), self._limits)

    def _reading(self) -> dict[str, Any]:
        return self._common | {
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "check.crcs": "true",
            "allow.auto.create.topics": "false",
            "fetch.max.wait.ms": min(200, self._limits.request_ms // 2),
            "fetch.max.bytes": 8 * 1024 * 1024,
            "max.poll.records": AT_ONCE,
            "default.api.timeout.ms": self._limits.request_ms,
        }


class _Host:
    """Starts and stops the Java process. If it ends by itself, the next client gets a new process."""

    def __init__(self) -> None:
        self.inside: dict[Jvm, int] = {}
        """The number of open clients of each process. A process that has ended stays until its clients are closed."""
        self._turn = asyncio.Lock()

    async def make(self, kind: str, config: Mapping[str, Any], **more: Any) -> _Client:
        async with self._turn:
            jvm = next((one for one in self.inside if not one.gone), None) or await Jvm.start()
            self.inside[jvm] = self.inside.get(jvm, 0) + 1
        number, made = jvm.ask(make=kind, config=config, **more)
        client = _Client(self, jvm, number)
        try:
            answer = await made
        except asyncio.CancelledError:
            await asyncio.shield(client.close(0))
            raise
        if "error" in answer and "gone" not in answer:
            await client.close(0)
            raise ValueError(answer["error"])  # the client refuses a setting
        return client

    async def left(self, jvm: Jvm) -> None:
        async with self._turn:
            self.inside[jvm] -= 1
            if not self.inside[jvm]:
                del self.inside[jvm]
                await jvm.stop()


class _Client:
    """One client in the Java process."""

    def __init__(self, host: _Host, jvm: Jvm, number: int) -> None:
        self._host = host
        self._jvm = jvm
        self._number = number
        self._closed = False

    def ask(self, command: str, **request: Any) -> asyncio.Future[dict[str, Any]]:
        return self._jvm.ask(on=self._number, do=command, **request)[1]

    async def close(self, seconds: float) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.wait([self.ask("close", seconds=seconds)], timeout=seconds + LATE)
            await self._host.left(self._jvm)


class JavaProducer:
    """Implements ``ChaosProducer``."""

    def __init__(self, client: _Client, limits: Limits) -> None:
        self._client = client
        self._limits = limits
        self._windows = Windows()

    async def send(self, partition: TopicPartition, key: str | None, value: str | None) -> Sent:
        async with self._windows.of(partition):
            answer = await self._client.ask("send", partition=partition, key=key, value=value)
        if "error" not in answer:
            return Sent(RequestOutcome.OK, answer["offset"])
        taken = answer.get("taken", "gone" in answer)
        outcome = outcomes.of_record(answer["code"]) if taken else RequestOutcome.FAILED
        return Sent(outcome, error=answer["error"])

    async def close(self) -> None:
        await self._client.close(self._limits.close)


class JavaTransactions:
    """Implements ``ChaosTransactions``. The outcome of a commit that fails is unknown, because the client repeats
    EndTxn by itself; one that has timed out continues with the next call."""

    def __init__(self, client: _Client, limits: Limits) -> None:
        self._client = client
        self._records = JavaProducer(client, limits)

    async def init(self) -> bool:
        return await self._did("init")

    async def begin(self) -> bool:
        return await self._did("begin")

    async def send(self, partition: TopicPartition, value: str) -> Sent:
        return await self._records.send(partition, None, value)

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], member: ChaosTransformer) -> bool:
        assert isinstance(member, JavaMember)
        places = [[*partition, offset] for partition, offset in offsets.items()]
        return await self._did("offsets", offsets=places, group=member.polled_as)

    async def commit(self) -> RequestOutcome:
        return RequestOutcome.OK if await self._did("commit") else RequestOutcome.UNKNOWN

    async def abort(self) -> RequestOutcome:
        return RequestOutcome.OK if await self._did("abort") else RequestOutcome.UNKNOWN

    async def _did(self, command: str, **request: Any) -> bool:
        return "error" not in await self._client.ask(command, **request)

    async def close(self) -> None:
        """An open transaction stays open: the producer does not wait for anything."""
        await self._client.close(0)


class _Reader:
    def __init__(self, client: _Client, limits: Limits) -> None:
        self._client = client
        self._request = limits.request
        self._session = 0
        self._name = new_name("member")
        self.polled_as: Sequence[str | int] = ()
        """The group, generation and member id with which the last records were polled."""
        self._poll = Polling(lambda seconds: asyncio.ensure_future(self._read(seconds)))

    async def poll(self, seconds: float) -> Sequence[Got]:
        return await self._poll(seconds)

    async def _read(self, seconds: float) -> list[Got]:
        answer = await self._client.ask("poll", seconds=seconds)
        if "error" in answer:
            await asyncio.sleep(min(PAUSE, seconds))
            return []
        found = [Got((topic, number), *rest) for topic, number, *rest in answer["records"]]
        if found:
            self._session = answer["assignment"]
            self.polled_as = answer.get("group", ())
        return found

    async def close(self) -> None:
        await self._client.close(self._request)


class JavaConsumer(_Reader):
    """Implements ``ChaosConsumer``."""

    async def end_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        answer = await self._client.ask("ends", partition=partition, seconds=self._request)
        return None if "error" in answer else (answer["begin"], answer["end"])


class JavaMember(_Reader):
    """Implements ``ChaosMember``."""

    @property
    def session(self) -> str:
        return f"{self._name}, assignment {self._session}"

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> RequestOutcome:
        places = [[*partition, offset] for partition, offset in offsets.items()]
        answer = await self._client.ask("commit", offsets=places, seconds=self._request)
        return RequestOutcome.UNKNOWN if "error" in answer else RequestOutcome.OK


class JavaAdmin(Admin):
    """Implements ``ChaosAdmin``."""

    def __init__(self, client: _Client, limits: Limits) -> None:
        self._client = client
        self._seconds = limits.request

    async def topics(self) -> Sequence[str] | None:
        answer = await self._client.ask("list")
        return None if "error" in answer else answer["topics"]

    async def _create(self, name: str, partitions: int, replicas: int, config: Mapping[str, str]) -> int:
        return _code(
            await self._client.ask("create", topic=name, partitions=partitions, replicas=replicas, config=dict(config))
        )

    async def _delete(self, name: str) -> int:
        return _code(await self._client.ask("delete", topic=name))

    async def _set_config(self, topic: str, config: Mapping[str, str]) -> int:
        return _code(await self._client.ask("set", topic=topic, config=dict(config)))

    async def close(self) -> None:
        await self._client.close(self._seconds)


def _code(answer: dict[str, Any]) -> int:
    return int(answer["code"]) if "error" in answer else 0
