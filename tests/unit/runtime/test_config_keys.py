"""Every configuration key of Kafka 4.4 is known, and those we support are exactly Kafka's."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.config.definitions import Key, Required
from milena.config.keys import INTERNAL, KEYS, REMOVED, TOPIC_KEYS, UNSUPPORTED
from milena.config.values import ConfigError, Type, parse, render
from tests.fixtures.own_keys import OWN_KEYS


def rows(name: str) -> list[list[str]]:
    lines = (Path(__file__).parent / name).read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def supported(kind: str) -> dict[str, Key]:
    return dict(KEYS) if kind == "broker" else dict(TOPIC_KEYS)


def shown(default: object, kind: Type) -> str:
    """A default as the list of Kafka's keys has it."""
    if isinstance(default, Required):
        return "REQUIRED"
    if default is None:
        return "NULL"
    assert isinstance(default, bool | int | float | str | tuple)
    text = render(default)
    assert text is not None
    return f"[{text.replace(',', ', ')}]" if kind is Type.LIST else text


@pytest.mark.parametrize("kind", ["broker", "topic"])
def test_each_supported_key_has_kafkas_type_default_and_mode(kind: str) -> None:
    kafka = {row[1]: tuple(row[2:]) for row in rows("kafka-4.4-keys.tsv") if row[0] == kind}
    ours = {
        name: (
            key.type.name,
            shown(key.default, key.type),
            key.mode.value if kind == "broker" else "-",
            "internal" if name in INTERNAL or name.startswith("internal.") else "-",
        )
        for name, key in supported(kind).items()
    }
    for name in OWN_KEYS & ours.keys():
        assert name not in kafka
        del ours[name]
    assert ours == {name: facts for name, facts in kafka.items() if name in ours}
    if kind == "topic":
        assert ours.keys() == kafka.keys()


def test_each_key_of_a_broker_is_supported_or_known_not_to_be() -> None:
    kafka = {row[1] for row in rows("kafka-4.4-keys.tsv") if row[0] == "broker"}
    assert kafka <= KEYS.keys() | UNSUPPORTED
    assert not KEYS.keys() & (UNSUPPORTED | REMOVED)
    assert not kafka & REMOVED


def test_values_are_taken_and_refused_with_kafkas_words() -> None:
    for kind, name, text, outcome in rows("kafka-4.4-values.tsv"):
        try:
            ours = f"ok {render(supported(kind)[name].parse(text))}"
        except ConfigError as error:
            ours = f"error {error}"
        assert (name, text, ours) == (name, text, outcome)


def test_every_key_says_what_it_does() -> None:
    for key in (*KEYS.values(), *TOPIC_KEYS.values()):
        assert key.doc.endswith(".")


def test_a_list_loses_its_duplicates() -> None:
    assert KEYS["log.cleanup.policy"].parse("delete, delete,compact") == ("delete", "compact")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.5", "0.5"), ("10000000", "1.0E7"), ("1.25e-5", "1.25E-5"), ("-12345678.5", "-1.23456785E7"), ("0", "0.0")],
)
def test_decimals_are_shown_as_java_shows_them(text: str, expected: str) -> None:
    assert render(parse("key", text, Type.DOUBLE)) == expected
