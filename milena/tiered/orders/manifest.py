"""What was made of a work order: for each group whether it has changed, its objects, and their checksums.

It is written last, so that without it nothing was made. The leader believes none of it: what is here says only what to
read, and how much of it.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple
from uuid import UUID

from milena.protocol.types import LeaderEpoch
from milena.protocol.uuids import to_text
from milena.tiered.orders.keys import ENTRY, WINNER
from milena.tiered.orders.order import Order
from milena.tiered.orders.texts import BadText, Fields

VERSION: Final = 1
MOST_BYTES: Final = 64 << 20
_FEW: Final = 64 << 10
_OF_SOURCE: Final = 1 << 10
"""A group and an object of keys have less."""
_SLACK: Final = 1 << 20
_NAME: Final = re.compile(r"[a-z]+-[0-9A-Za-z-]{1,60}\.[a-z]{1,12}")


class StagedObject(NamedTuple):
    """``name``: in the order's folder; ``size``: bytes; ``crc``: CRC-32C of all."""

    name: str
    size: int
    crc: int


class MadeGroup(NamedTuple):
    """``log``: what takes the place of the group's sources; None: they stay as they are. ``winners``: see ``keys``."""

    log: StagedObject | None
    winners: StagedObject


class Manifest(NamedTuple):
    """``keys``: objects that have the sorted entries one after the other, see ``keys``."""

    order: UUID
    leader_epoch: LeaderEpoch
    groups: tuple[MadeGroup, ...]
    keys: tuple[StagedObject, ...]


def encode_manifest(manifest: Manifest) -> bytes:
    return json.dumps(
        {
            "version": VERSION,
            "order": to_text(manifest.order),
            "leaderEpoch": manifest.leader_epoch,
            "groups": [
                {"log": None if group.log is None else group.log._asdict(), "winners": group.winners._asdict()}
                for group in manifest.groups
            ],
            "keys": [one._asdict() for one in manifest.keys],
        }
    ).encode()


def most_bytes(order: Order) -> int:
    """Of the manifest: whoever reads more holds up all that runs beside it."""
    return min(MOST_BYTES, _FEW + _OF_SOURCE * sum(len(group.sources) for group in order.groups))


def decode_manifest(data: bytes, order: Order) -> Manifest:
    """Raises BadText, also if it is not of ``order``, or says of more bytes than could come of that."""
    found = Fields.read(data, "the manifest")
    if found.number("version") != VERSION:
        raise BadText(f"the manifest has version {found.number('version')}, {VERSION} is known")
    if found.id("order") != order.id:
        raise BadText(f"the manifest is of the order {to_text(found.id('order'))}")
    if found.number("leaderEpoch") != order.leader_epoch:
        raise BadText(f"the manifest is of leader epoch {found.number('leaderEpoch')}, not {order.leader_epoch}")
    groups = found.every("groups")
    if len(groups) != len(order.groups):
        raise BadText(f"the manifest has {len(groups)} groups, the order {len(order.groups)}")
    made: list[MadeGroup] = []
    for one, ordered in zip(groups, order.groups, strict=True):
        fields = Fields(one, "a group of the manifest")
        offsets = ordered.last - ordered.first + 1
        log = None if fields.get("log") is None else _object(fields.get("log"), 2 * ordered.size + _SLACK)
        made.append(MadeGroup(log, _object(fields.get("winners"), WINNER.size * offsets)))
    most = ENTRY.size * (order.end - order.first)
    keys = tuple(_object(one, most) for one in found.every("keys"))
    if sum(one.size for one in keys) > most:
        raise BadText(f"the manifest has keys of more than {most} bytes")
    names = [one.name for one in keys] + [one.name for group in made for one in group if one is not None]
    if len(set(names)) < len(names):
        raise BadText("the manifest names an object twice")
    return Manifest(order.id, order.leader_epoch, tuple(made), keys)


def _object(found: object, most: int) -> StagedObject:
    fields = Fields(found, "an object of the manifest")
    name = fields.text("name")
    if not _NAME.fullmatch(name):
        raise BadText(f"the manifest names an object {name[:60]!r}")
    return StagedObject(name, fields.number("size", 0, most), fields.number("crc", 0, (1 << 32) - 1))
