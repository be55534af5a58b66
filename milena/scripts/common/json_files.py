"""The JSON files of scripts: lists of partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from milena.protocol.types import TopicPartition
from milena.scripts.common.failures import ScriptError

Json = dict[str, Any]


def read_json(path: str, invalid: str) -> Json:
    """Return the object in a file. ``invalid``: the message if it is not JSON. Raises ScriptError."""
    try:
        with open(path, "rb") as file:
            content = json.load(file)
    except OSError as error:
        raise ScriptError(f"Unable to read file {path}: {error.strerror}", "java.io.IOException") from None
    except ValueError:
        raise ScriptError(invalid) from None
    if not isinstance(content, dict):
        raise ScriptError(invalid)
    return content


def partitions_in(content: Json) -> Iterator[tuple[TopicPartition, Json]]:
    """Yield the partitions in the list ``partitions`` with their entries. Raises ScriptError."""
    for entry in content.get("partitions") or ():
        topic, number = (entry.get("topic"), entry.get("partition")) if isinstance(entry, dict) else (None, None)
        if not isinstance(topic, str) or type(number) is not int:
            raise ScriptError(f"an entry of partitions needs a topic and a partition, not {json.dumps(entry)}")
        yield (topic, number), entry
