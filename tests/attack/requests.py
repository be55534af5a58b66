"""Random requests of every API and version that a role serves, with values that pass the first checks."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from types import UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin
from uuid import UUID

from milena.protocol.api_keys import ApiKey
from milena.protocol.records.batch import Codec
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests import messages
from milena.protocol.requests.headers import request_header
from milena.protocol.schemas.message_classes import message_class
from milena.protocol.schemas.registry import Role, served

INTEGERS: Final = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "int64": 63}
CLIENT: Final = "attack"


class Target(NamedTuple):
    """Names and ids of a cluster for use in requests."""

    cluster_id: str
    topics: tuple[str, ...]
    topic_ids: tuple[UUID, ...]
    groups: tuple[str, ...]


class Api(NamedTuple):
    """One version of one API."""

    key: ApiKey
    version: int


def apis(role: Role) -> list[Api]:
    """Every version of every API that the role serves."""
    return [Api(key, version) for key, at in served(role).items() for version in range(at.min, at.max + 1)]


class Requests:
    """Generates random requests; the seed of ``rnd`` and the target determine them."""

    def __init__(self, target: Target, rnd: random.Random) -> None:
        self._target = target
        self._rnd = rnd
        self._batches = tuple(_batches())

    def frame(self, api: Api, correlation_id: int) -> bytes:
        """A request without its length prefix."""
        return request_header(api.key, api.version, correlation_id, CLIENT) + self.body(api)

    def body(self, api: Api) -> bytes:
        if api.key == ApiKey.ENVELOPE:
            return self._envelope(api)
        return messages.encode_request(api.key, api.version, **self._struct(_schema(api)))

    def _envelope(self, api: Api) -> bytes:
        inner = self._rnd.choice([one for one in apis(Role.CONTROLLER) if one.key != ApiKey.ENVELOPE])
        return messages.encode_request(
            api.key,
            api.version,
            request_data=self.frame(inner, 1),
            request_principal=self._rnd.choice([None, b"\0\0\5User\12ANONYMOUS\0\0"]),
            client_host_address=bytes([127, 0, 0, 1]),
        )

    def _struct(self, cls: type[Any]) -> dict[str, Any]:
        fields = dataclasses.fields(cls)
        return {field.name: self._field(field) for field in fields if not self._left_out(field)}

    def _left_out(self, field: Any) -> bool:
        return field.default is not dataclasses.MISSING and self._rnd.random() < 0.3

    def _field(self, field: Any) -> Any:
        return self._value(field.name, field.type, field.metadata.get("kafka_type", ""))

    def _value(self, name: str, annotation: Any, kind: str) -> Any:
        rnd = self._rnd
        if get_origin(annotation) is UnionType:
            inner = next(member for member in get_args(annotation) if member is not type(None))
            return None if rnd.random() < 0.15 else self._value(name, inner, kind)
        if get_origin(annotation) is tuple:
            element = get_args(annotation)[0]
            return [self._value(name, element, kind) for _ in range(rnd.choice((0, 1, 1, 1, 2, 3)))]
        if dataclasses.is_dataclass(annotation):
            assert isinstance(annotation, type)
            return self._struct(annotation)
        return self._primitive(name, kind)

    def _primitive(self, name: str, kind: str) -> Any:
        rnd = self._rnd
        if kind in INTEGERS:
            return self._integer(name, INTEGERS[kind], signed=kind != "uint16")
        match kind:
            case "bool":
                return rnd.random() < 0.5
            case "float64":
                return rnd.choice((0.0, -1.5, float("inf"), float("nan")))
            case "string":
                return self._string(name)
            case "bytes" | "records":
                return self._bytes()
            case "uuid":
                return rnd.choice((*self._target.topic_ids, UUID(int=rnd.getrandbits(128) | 1)))
            case "error_code":
                return rnd.choice((-1, 0, 3, 9999))
            case "timedelta_i32" | "timedelta_i64":
                return rnd.choice((-1, 0, 1, 100, 2**31 - 1))
            case "datetime_i64":
                return rnd.choice((-1, 0, 1, 2**62))
        raise AssertionError(f"no values of type {kind}")

    def _integer(self, name: str, bits: int, *, signed: bool) -> int:
        rnd = self._rnd
        if "wait" in name or "timeout" in name:
            return rnd.choice((-1, 0, 1, 50))
        if name in ("broker_id", "replica_id", "node_id", "controller_id") and rnd.random() < 0.7:
            return rnd.choice((-1, 7, 8))
        if rnd.random() < 0.75:
            return rnd.choice((0, 0, 1, 1, 2, 3))
        return rnd.choice((-1 if signed else 1, 2**bits - 1, -(2**bits) if signed else 0, rnd.randrange(2**bits)))

    def _string(self, name: str) -> str:
        rnd, target = self._rnd, self._target
        strange = ("", "x", "\0", "é" * 40, "a..b", "%s{}\n\x1b[31m", "y" * 300, "__consumer_offsets")
        if rnd.random() < 0.15:
            return rnd.choice(strange)
        if "group" in name or name in ("key", "keys", "coordinator_keys"):
            return rnd.choice((*target.groups, "new-group"))
        if "protocol" in name or "assignor" in name:
            return rnd.choice(("consumer", "range"))
        if "cluster" in name:
            return target.cluster_id
        if "resource" in name or "topic" in name or name == "name":
            return rnd.choice((*target.topics, "made-by-attack", "1", "retention.ms", "segment.bytes"))
        if "value" in name:
            return rnd.choice(("1", "1048576", "true", "compact", "0:1"))
        return rnd.choice((*target.topics, *target.groups, "PLAINTEXT", "CONTROLLER", "127.0.0.1"))

    def _bytes(self) -> bytes:
        rnd = self._rnd
        if rnd.random() < 0.7:
            return rnd.choice(self._batches)
        return rnd.randbytes(rnd.choice((0, 1, 20, 200)))


def _schema(api: Api) -> type[Any]:
    found: type[Any] = message_class(api.key, api.version, "request")
    return found


def _batches() -> Iterator[bytes]:
    """One record batch for each codec."""
    records = [Record(at, at, b"key", b"value" * 20, ()) for at in range(3)]
    for codec in Codec:
        yield bytes(build_batch(records, codec=codec, base_timestamp=1_700_000_000_000))
