"""Numbers in text, as Java reads them. The expected values are those of Java 17."""

from __future__ import annotations

from math import inf, isnan

import pytest

from milena.config.values import ConfigError, Type, parse
from milena.runtime.numbers import double, trimmed, whole


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("+5", 5),
        ("-0", 0),
        ("0" * 5_000 + "7", 7),
        ("9223372036854775807", (1 << 63) - 1),
        ("-9223372036854775808", -(1 << 63)),
        ("\u0661\u0662", 12),
        ("\uff15", 5),
        ("9223372036854775808", None),
        ("9" * 5_000, None),
        ("\U0001d7ce", None),
        ("1_0", None),
        (" 5", None),
        ("+", None),
        ("+-5", None),
        ("0x5", None),
        ("\u00b2", None),
        ("", None),
    ],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1f", 1.0),
        ("1D", 1.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e5d", 1e5),
        (" 0.5\x00", 0.5),
        ("0x1p3", 8.0),
        ("-0X.8p1F", -1.0),
        ("0x1.p0", 1.0),
        ("0x1p99999999999", inf),
        ("-0x1p99999999999", -inf),
        ("0x1p-99999999999", 0.0),
        ("1e99999999999", inf),
        ("-Infinity", -inf),
        ("1e", None),
        (".", None),
        ("0x1", None),
        ("Infinityf", None),
        ("inf", None),
        ("1_0", None),
        ("\xa01", None),
        ("\u0661", None),
    ],
)
def test_doubles(text: str, number: float | None) -> None:
    assert double(text) == number


def test_not_a_number_is_a_double() -> None:
    for text in ("NaN", "+NaN", "-NaN"):
        number = double(text)
        assert number is not None and isnan(number)
    assert double("nan") is double("NaNd") is None


def test_blanks_are_the_characters_up_to_the_space() -> None:
    assert trimmed("\x00\x1f \n5\t") == "5"
    assert trimmed("\xa05\u2003") == "\xa05\u2003"


@pytest.mark.parametrize(("text", "value"), [("TRUE", True), (" False\x01", False), ("fal\u017fe", False)])
def test_booleans_in_any_case(text: str, value: bool) -> None:
    assert parse("preallocate", text, Type.BOOLEAN) is value


@pytest.mark.parametrize("text", ["yes", "1", "\xa0true", ""])
def test_other_texts_are_no_booleans(text: str) -> None:
    with pytest.raises(ConfigError, match="either true or false"):
        parse("preallocate", text, Type.BOOLEAN)


def test_only_blanks_of_ascii_surround_the_commas_of_a_list() -> None:
    assert parse("cleanup.policy", " compact\t, delete ", Type.LIST) == ("compact", "delete")
    assert parse("cleanup.policy", "compact\xa0,delete", Type.LIST) == ("compact\xa0", "delete")
