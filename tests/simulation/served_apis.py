"""For each API that nodes serve: a request that succeeds, and one that names something that does not exist."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from uuid import UUID

from milena.client.cluster import Cluster
from milena.lab.cluster import CONTROLLER, CONTROLLER_PORT, SimulatedCluster, host_of
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests import messages
from milena.protocol.schemas.registry import Role
from tests.oracle.differential.sides import plain
from tests.simulation.steps import until

TOPIC: Final = "t"
"""Two partitions, led by broker 1, with a record each."""
MISSING: Final = "missing"
MISSING_ID: Final = UUID(int=99)
NO_BROKER: Final = 77
"""No broker has this id."""
TOPIC_RESOURCE: Final = 2
FEATURES: Final = [
    {"name": "metadata.version", "min_supported_version": 7, "max_supported_version": 33},
    {"name": "transaction.version", "min_supported_version": 0, "max_supported_version": 2},
]
PRINCIPAL: Final = b"\0\0\5User\12ANONYMOUS\0\0"
PROTOCOLS: Final = [{"name": "range", "metadata": b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"}]

Fields: TypeAlias = dict[str, Any]


@dataclass
class Asker:
    """Sends requests in given versions to one node, and to the other kind of node where a case needs it."""

    cluster: SimulatedCluster
    client: Cluster
    role: Role
    asked: dict[ApiKey, set[int]] = field(default_factory=dict)

    @property
    def image(self) -> Any:
        assert self.cluster.controller is not None
        return self.cluster.controller.state.image

    @property
    def cluster_id(self) -> str:
        assert self.cluster.controller is not None
        return self.cluster.controller.cluster_id

    @property
    def topic_id(self) -> UUID:
        found: UUID = self.image.topics[TOPIC].id
        return found

    @property
    def epoch(self) -> int:
        """The broker epoch of broker 1."""
        return int(self.image.brokers[1].epoch)

    async def snapshot(self) -> tuple[int, int]:
        """End offset and epoch of the newest snapshot of the metadata log."""
        assert self.cluster.controller is not None
        store = self.cluster.controller.metadata.snapshots
        await until(lambda: store.latest() is not None)
        newest = store.latest()
        assert newest is not None
        return int(newest.end_offset), int(newest.epoch)

    def name(self, of: str, version: int) -> str:
        """A name that no other request uses."""
        return f"{of}-{self.role.value}-{version}"

    async def ask(self, key: ApiKey, version: int, /, role: Role | None = None, **fields: Any) -> Any:
        """The response as plain data. Fails if it has UNKNOWN_SERVER_ERROR, because then the handler has failed."""
        at = (host_of(1), 9092) if (role or self.role) is Role.BROKER else (CONTROLLER, CONTROLLER_PORT)
        channel = self.client.to(*at)
        await channel.connect()
        body = messages.encode_request(key, version, **fields)
        answer = plain(
            await channel.request_raw(
                key, version, [body], lambda data: messages.decode_response(key, version, bytes(data))
            )
        )
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes(answer), f"{key.name} v{version}: {answer}"
        self.asked.setdefault(key, set()).add(version)
        return answer

    async def well(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        """Ask, and expect a response without errors."""
        answer = await self.ask(key, version, **fields)
        assert set(codes(answer)) <= {ErrorCode.NONE}, f"{key.name} v{version}: {answer}"
        return answer

    async def refused(self, key: ApiKey, version: int, error: ErrorCode, /, **fields: Any) -> Any:
        """Ask, and expect a response that contains this error."""
        answer = await self.ask(key, version, **fields)
        assert error in codes(answer), f"{key.name} v{version}: {answer}"
        return answer

    async def coordinated(self) -> None:
        """Wait until broker 1 coordinates groups."""
        async with asyncio.timeout(30):
            while any(codes(await self._described())):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.1)

    async def _described(self) -> list[Any]:
        of_brokers: Fields = {"role": Role.BROKER}
        return [
            await self.ask(ApiKey.FIND_COORDINATOR, 3, key="g", key_type=0, **of_brokers),
            await self.ask(ApiKey.DESCRIBE_GROUPS, 0, groups=["g"], **of_brokers),
        ]

    async def joined(self, group: str) -> str:
        """Create a group; return the id of its only member, which has its assignment."""
        member = await self.join(group, 9)
        await self.well(ApiKey.SYNC_GROUP, 5, **syncing(group, member))
        return member

    async def join(self, group: str, version: int) -> str:
        asked = joining(group)
        if version >= 4:
            asked["member_id"] = (await self.ask(ApiKey.JOIN_GROUP, version, **asked))["member_id"]
        return str((await self.well(ApiKey.JOIN_GROUP, version, **asked))["member_id"])


Case: TypeAlias = Callable[[Asker, int], Awaitable[None]]


def codes(answer: Any) -> Iterator[int]:
    """All error codes in a response."""
    if isinstance(answer, Mapping):
        for name, value in answer.items():
            if name.endswith("error_code"):
                yield int(value)
            else:
                yield from codes(value)
    elif isinstance(answer, list):
        for item in answer:
            yield from codes(item)


def joining(group: str) -> Fields:
    return {
        "group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "member_id": "",
        "group_instance_id": None, "protocol_type": "consumer", "protocols": PROTOCOLS, "reason": None,
    }  # fmt: skip


def syncing(group: str, member: str) -> Fields:
    return {
        "group_id": group, "generation_id": 1, "member_id": member, "group_instance_id": None,
        "protocol_type": "consumer", "protocol_name": "range",
        "assignments": [{"member_id": member, "assignment": b"all"}],
    }  # fmt: skip


def batch() -> bytes:
    return bytes(build_batch([Record(0, 0, None, b"x")], base_timestamp=1_700_000_000_000))


def named(t: Asker, name: str, partitions: list[Any], key: str = "partitions") -> list[Fields]:
    """The fields of a topic of a request, with name and id: each version encodes those that it has."""
    return [{"name": name, "topic_id": t.topic_id if name == TOPIC else MISSING_ID, key: partitions}]


def missing_topic(version: int, by_id_since: int) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if version >= by_id_since else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def made(t: Asker, name: str) -> Any:
    """Make a topic."""
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    answer = await t.well(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=5000)
    return answer["topics"][0]["topic_id"]


async def registered(t: Asker, number: int, version: int = 4) -> int:
    """Register a broker, which stays fenced; return its broker epoch."""
    answer = await t.well(
        ApiKey.BROKER_REGISTRATION,
        version,
        role=Role.CONTROLLER,
        broker_id=number,
        cluster_id=t.cluster_id,
        incarnation_id=UUID(int=1000 + number),
        listeners=[{"name": "PLAINTEXT", "host": "h", "port": 9, "security_protocol": 0}],
        features=FEATURES,
        rack=None,
        log_dirs=[UUID(int=2000 + number)],
    )
    return int(answer["broker_epoch"])
