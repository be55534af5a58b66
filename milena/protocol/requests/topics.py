"""The topic in Produce and Fetch: a name in older versions, an id from v13 on (KIP-516)."""

from __future__ import annotations

from uuid import UUID

from milena.protocol.requests.scan import text_at, uuid_at
from milena.protocol.schemas.primitives import Data, Writer


def topic_at(data: Data, pos: int, by_id: bool, flexible: bool) -> tuple[str | None, UUID | None, int]:
    """Read a topic name or id; return both, one of them None, and the position after it. Raises as the functions of
    ``protocol.requests.scan``."""
    if by_id:
        topic_id, pos = uuid_at(data, pos)
        return None, topic_id, pos
    name, pos = text_at(data, pos, flexible)
    return name, None, pos


def write_topic(out: Writer, name: str | None, topic_id: UUID | None, by_id: bool, flexible: bool) -> None:
    """Append the name or id. Raises ValueError if the id (``by_id``) or else the name is None."""
    if by_id:
        if topic_id is None:
            raise ValueError(f"this version names topics by id, and topic {name} comes without one")
        out.data += topic_id.bytes
    elif name is None:
        raise ValueError(f"this version names topics by name, and topic {topic_id} comes without one")
    elif flexible:
        out.compact_string(name)
    else:
        out.string(name)
