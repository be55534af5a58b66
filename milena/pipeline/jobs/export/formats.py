"""The formats of keys and values in an export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from milena.pipeline.errors import PipelineError

BYTES: Final = "bytes"
STRING: Final = "string"
JSON: Final = "json:"


@dataclass(frozen=True, slots=True)
class Form:
    """The format of keys or values. ``schema``: the schema of JSON in Spark's DDL; empty for the other formats."""

    kind: str = BYTES
    schema: str = ""

    @classmethod
    def of(cls, text: str) -> Form:
        """Parse ``bytes``, ``string`` or ``json:id INT, name STRING``. Raises PipelineError."""
        if text in (BYTES, STRING):
            return cls(text)
        if text.startswith(JSON) and text[len(JSON) :].strip():
            return cls("json", text[len(JSON) :].strip())
        raise PipelineError(f"{text} is neither bytes nor string nor json:SCHEMA, as in json:id INT, name STRING")
