"""Regular expressions in linear time: the answers of RE2/J 1.8, which Kafka uses, and the limits."""

from __future__ import annotations

import pytest

from milena.protocol.cooperative import YieldBudget
from milena.protocol.regular_expressions import InvalidPattern, Pattern

TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "aab",
    "aaa",
    "abc",
    "ABC",
    "a.b",
    "a.b.",
    "a*",
    "orders-",
    "orders-17",
    "x",
    "ab cd",
    "{",
    "a{",
    "a{,2}",
    "AB",
    "A",
    "1",
    "12 a",
    "Ab",
    "]",
    "-",
    "a-",
    "z-1",
    "é",
    "\n",
    "a\n",
    "k",
    "K",
    "a]",
]
MATCHED: list[tuple[str, list[str]]] = [
    ("", [""]),
    ("a*b", ["b", "ab", "aab"]),
    ("(a|b)+c", ["abc"]),
    ("orders-.*", ["orders-", "orders-17"]),
    ("orders-[0-9]{1,3}", ["orders-17"]),
    ("^x$", ["x"]),
    ("\\bab\\b.*", ["ab", "ab cd"]),
    ("(?i)aBc", ["abc", "ABC"]),
    ("[^a-c]+", ["ABC", "orders-", "orders-17", "x", "{", "AB", "A", "1", "]", "-", "z-1", "é", "\n", "k", "K"]),
    ("a{2,3}", ["aaa"]),
    ("a{0,}", ["", "a", "aaa"]),
    ("{", ["{"]),
    ("a{", ["a{"]),
    ("a{,2}", ["a{,2}"]),
    ("(a*)*b", ["b", "ab", "aab"]),
    ("a|", ["", "a"]),
    ("\\Qa.b\\E.", ["a.b."]),
    ("\\Qa*", ["a*"]),
    ("\\x41\\x{42}", ["AB"]),
    ("\\101", ["A"]),
    ("\\d+\\s?\\w", ["12 a"]),
    ("[[:upper:]]+[[:^upper:]]*", ["ABC", "AB", "A", "Ab", "K"]),
    ("[]a]+", ["a", "aaa", "]", "a]"]),
    ("[a-]+", ["a", "aaa", "-", "a-"]),
    ("[\\d-z]+", ["1", "-", "z-1"]),
    ("\\pL+", ["a", "b", "ab", "aab", "aaa", "abc", "ABC", "x", "AB", "A", "Ab", "é", "k", "K"]),
    ("\\p{Nd}", ["1"]),
    ("\\P{L}+", ["{", "1", "]", "-", "\n"]),
    ("(?s).", ["a", "b", "x", "{", "A", "1", "]", "-", "é", "\n", "k", "K"]),
    (".", ["a", "b", "x", "{", "A", "1", "]", "-", "é", "k", "K"]),
    ("(?m)^a$.*", ["a"]),
    ("(?s)a.*(?-s)", ["a", "ab", "aab", "aaa", "abc", "a.b", "a.b.", "a*", "ab cd", "a{", "a{,2}", "a-", "a\n", "a]"]),
    ("(?P<name>a)(?<other>b)", ["ab"]),
    ("a(?i)*", ["", "a", "aaa"]),
    (".*?(a)?", [text for text in TEXTS if "\n" not in text]),
    ("\\Aa\\z", ["a"]),
    ("a\\Bb", ["ab"]),
    ("(?i)k", ["k", "K"]),
    ("é+", ["é"]),
    ("a?b??", ["", "a", "b", "ab"]),
    ("[a\\]]+", ["a", "aaa", "]", "a]"]),
]
REFUSED = [
    "(",
    "a)",
    "*a",
    "a**",
    "a{2}{3}",
    "a{1001}",
    "a{2,1}",
    "[b-a]",
    "[a",
    "\\",
    "\\8",
    "\\C",
    "\\pX",
    "\\p{Greek",
    "(?P<>a)",
    "(?x)a",
    "(?=a)",
    "(?!a)",
    "[[:no:]]",
    "\\x{110000}",
    "[a-\\d]",
]


@pytest.mark.parametrize(("pattern", "matched"), MATCHED)
def test_a_pattern_matches_whole_texts_as_in_re2(pattern: str, matched: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [text for text in TEXTS if compiled.matches(text)] == matched


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_re2_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match="invalid regular expression: "):
        Pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "((a{1000}){1000}){1000}",
        "((()){1000}){1000}",
        "(" * 5_000,
        "(" * 5_000 + ")" * 5_000,
        "a{1000}" * 6,
        "a|" * 5_001,
    ],
)
def test_a_pattern_that_is_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


def steps(pattern: Pattern, text: str) -> int:
    """The number of yields of one match."""
    return sum(1 for _ in pattern.match(text, YieldBudget(1)))


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa|aaa)*b", "(.*a){30}b", "(a?){50}a{50}b"])
def test_the_work_is_linear_and_shared_between_texts(pattern: str) -> None:
    """A backtracking matcher would not end."""
    compiled = Pattern(pattern)
    first = steps(compiled, "a" * 2_000)
    assert first <= 2_000
    assert not compiled.matches("a" * 20_000)
    assert steps(compiled, "a" * 2_000) == 0, "the paths are known"
    assert compiled.matches("a" * 100 + "b")


def test_the_paths_that_are_kept_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Pattern("(.*x){30}")
    texts = [f"{'x' * (number % 7)}{chr(0x4E00 + number)}{'x' * 10}" for number in range(200)]
    expected = [compiled.matches(text) for text in texts]
    unlimited = compiled._kept
    monkeypatch.setattr("milena.protocol.regular_expressions.MAX_KEPT", 100)
    again = Pattern("(.*x){30}")
    assert [again.matches(text) for text in texts] == expected
    assert again._kept < 200 < unlimited
    assert again.matches("x" * 30)
