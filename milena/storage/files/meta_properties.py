"""``meta.properties``: the cluster and the node of a log directory, as Java properties of version 1 (version 0 had
``broker.id``)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from milena.config.sources import from_properties
from milena.config.values import ConfigError
from milena.protocol.types import NodeId
from milena.protocol.uuids import from_text, to_text


class CorruptMetaProperties(ValueError):
    """A ``meta.properties`` without a valid cluster id, node id or directory id."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """``directory_id`` is None in directories formatted before Kafka 3.7."""

    cluster_id: str
    node_id: NodeId
    directory_id: UUID | None


def encode_meta_properties(meta: MetaProperties) -> bytes:
    lines = [f"cluster.id={_escape(meta.cluster_id)}"]
    if meta.directory_id is not None:
        lines.append(f"directory.id={to_text(meta.directory_id)}")
    lines += [f"node.id={meta.node_id}", "version=1", ""]
    return "\n".join(lines).encode("latin-1")


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Decode a ``meta.properties``. Raises CorruptMetaProperties."""
    try:
        values = {key: setting.value for key, setting in from_properties(data, "meta.properties").items()}
        directory = values.get("directory.id")
        return MetaProperties(
            values["cluster.id"],
            NodeId(int(values["node.id"] if values.get("version") != "0" else values["broker.id"])),
            from_text(directory) if directory else None,
        )
    except KeyError as missing:
        raise CorruptMetaProperties(f"{missing.args[0]} is missing") from missing
    except (ValueError, ConfigError) as error:
        raise CorruptMetaProperties(str(error)) from error


def _escape(text: str) -> str:
    return "".join(f"\\{character}" if character in "\\=:#! " else character for character in text)
