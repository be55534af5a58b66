"""Options that jobs for Spark's Kafka connector have, and that have no effect here: those of Kafka's clients
(``kafka.*``) and of the connector's own consumers. They are accepted with one warning, unless the job would then read
or write something else, or without the protection that it asks for.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from milena.pipeline.errors import PipelineError
from milena.runtime.logging import get_logger

PREFIX: Final = "kafka."
CONSUMERS: Final = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
"""Options of the connector about its consumers and their requests."""
OF_SOURCE: Final[Mapping[str, str]] = {
    "auto.offset.reset": "use option startingOffsets",
    "key.deserializer": "keys are deserialized as byte arrays: convert the column key",
    "value.deserializer": "values are deserialized as byte arrays: convert the column value",
    "enable.auto.commit": "offsets are in the checkpoint of the query",
    "interceptor.classes": "interceptors may change records",
}
"""Options of Kafka's consumer that Spark's source refuses, too, with a hint."""
OF_SINK: Final[Mapping[str, str]] = {
    "key.serializer": "keys are serialized as byte arrays: convert the column key",
    "value.serializer": "values are serialized as byte arrays: convert the column value",
}
"""Options of Kafka's producer that Spark's sink refuses, too, with a hint."""
EFFECTIVE: Final = ("bootstrap.servers", "isolation.level", "security.protocol")
"""Options of Kafka's clients with an effect: a misspelt one is an error."""
_ALIKE: Final = 0.85


def ignored_options(
    given: Mapping[str, str], known: Collection[str], refused: Mapping[str, str], others: Iterable[str] = CONSUMERS
) -> list[str]:
    """Return the names in ``given`` that are accepted without effect. ``given``: options by name in lower case;
    ``known``: the names that have an effect, in lower case; ``refused``: OF_SOURCE or OF_SINK;
    ``others``: accepted names without the prefix. Raises PipelineError."""
    harmless = {name.lower(): name for name in others}
    found = []
    for name in sorted(given.keys() - known):
        if name in harmless:
            found.append(harmless[name])
        elif name.startswith(PREFIX):
            _check(name.removeprefix(PREFIX), given[name], refused)
            found.append(name)
    return found


def _check(name: str, value: str, refused: Mapping[str, str]) -> None:
    if name in refused:
        raise PipelineError(f"Kafka option '{name}' is not supported: {refused[name]}")
    if name == "security.protocol" and value.upper() != "PLAINTEXT":
        raise PipelineError(f"option {PREFIX}{name}={value}: only PLAINTEXT is supported")
    alike = difflib.get_close_matches(name, EFFECTIVE, 1, _ALIKE)
    if alike and name not in EFFECTIVE:
        raise PipelineError(f"option {PREFIX}{name} is unknown; is {PREFIX}{alike[0]} meant?")


def warn_of_ignored(ignored: Sequence[str]) -> None:
    """Log one warning that lists the options without effect, if there are any."""
    if ignored:
        get_logger("pipeline").warning("options without effect", options=", ".join(ignored))
