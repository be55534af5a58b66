"""docs/configuration.md says what the definitions say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from milena.config.document import renewed
from tests.fixtures.own_keys import OWN_KEYS

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"


def test_the_tables_in_the_document_are_current() -> None:
    document = DOCUMENT.read_text()
    assert document == renewed(document), "run: python -m milena.config.document < docs/configuration.md"


def test_every_topic_key_of_the_quick_start_is_there() -> None:
    document = DOCUMENT.read_text()
    for key in ("retention.ms", "cleanup.policy", "num.partitions", "log.dirs", "auto.create.topics.enable"):
        assert f"| `{key}` |" in document


def test_the_keys_that_kafka_does_not_have_are_listed() -> None:
    _, _, rest = DOCUMENT.read_text().partition("These keys are Milena's own:")
    table = rest.strip().partition("\n\n")[0]
    listed = re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(key for key in OWN_KEYS if not key.startswith("internal."))


def test_a_document_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no table"):
        renewed("nothing")
