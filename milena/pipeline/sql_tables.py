"""Tables of Spark SQL: ``CREATE TABLE t USING milena OPTIONS (...)``.

Spark 4.2 passes the options of such a table to a Python source when the table is created, and none when it is read. But
it keeps the schema that the source returns, with the metadata of its fields. So the options are kept there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from milena.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PREFIX: Final = "option."
"""Of an option in the properties of a new table."""
KEY: Final = "milena.options"
"""The key in the metadata of the first field."""


def options_of_new_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being created; None if ``given`` are the options of a query. Besides them
    Spark gives the table's properties, and its location as ``path``. Raises PipelineError."""
    if "provider" not in given or not ("location" in given or any(name.startswith(PREFIX) for name in given)):
        return None
    found = {name.removeprefix(PREFIX): value for name, value in given.items() if name.startswith(PREFIX)}
    if "location" in given:
        found["path"] = given["location"]
    if "storageoptions" in found:
        raise PipelineError(
            "option storageOptions: a table would keep it in its schema, where everyone can read it: use the store's "
            "environment variables or CREATE TEMPORARY VIEW"
        )
    return found


def keep_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return ``schema`` with the options of a table."""
    schema.fields[0].metadata = {KEY: json.dumps(dict(options), sort_keys=True)}
    return schema


def kept_options(schema: StructType) -> dict[str, str]:
    """Return the options in the schema of a table; empty for another schema."""
    kept = [one.metadata[KEY] for one in schema.fields if one.metadata and KEY in one.metadata]
    return dict(json.loads(kept[0])) if kept else {}
