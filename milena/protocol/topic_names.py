"""Validation of topic names, and collisions of their metric names (Kafka's ``Topic``)."""

from __future__ import annotations

import re
from typing import Final

MAX_LENGTH: Final = 249
"""Folder names are a topic name, a partition number, and sometimes a random id and a suffix: at most 255 characters."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def topic_name_problem(name: str) -> str | None:
    """Return why a topic name is invalid; None if it is valid."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"a topic cannot be named {name!r}"
    if len(name) > MAX_LENGTH:
        return f"the topic name has {len(name)} characters, more than {MAX_LENGTH}: {name}"
    if _LEGAL.fullmatch(name) is None:
        return f"the topic name {name!r} has other characters than ASCII letters, digits, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """Return the topic name as in metric names, which have '_' for '.': topics with equal keys collide."""
    return name.replace(".", "_")
