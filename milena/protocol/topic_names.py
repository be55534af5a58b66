"""Which topic names Kafka takes, and which two of them would share a metric's name."""

from __future__ import annotations

import re
from typing import Final

MAX_LENGTH: Final = 249
"""Folders are named after topics, with a partition number and up to a random id and a suffix behind."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def topic_name_problem(name: str) -> str | None:
    """What is wrong with a topic's name, in words; None for a good one."""
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
    """Metric names have '_' for '.': names with the same key collide."""
    return name.replace(".", "_")
