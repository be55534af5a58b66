"""Kafka's text form of UUIDs."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.uuids import from_text, to_text


def test_the_form_is_javas() -> None:
    assert to_text(UUID("11223344-5566-7788-99aa-bbccddeeff00")) == "ESIzRFVmd4iZqrvM3e7_AA"
    assert to_text(UUID(int=(1 << 64) + 2)) == "AAAAAAAAAAEAAAAAAAAAAg"


@given(st.uuids())
def test_every_uuid_is_read_back(value: UUID) -> None:
    assert from_text(to_text(value)) == value


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 23, "A" * 21 + "=", "A" * 21 + "!", "é" * 22, "+" * 22, "/" * 22])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="22 characters"):
        from_text(text)
