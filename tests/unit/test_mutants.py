"""What the mutation runner changes (``python -m tests.mutants``)."""

from __future__ import annotations

from types import FunctionType

import pytest

from tests.mutants.mutations import marked, mutants_of
from tests.mutants.reasons import parse

SOURCE = """
class Gate:
    def opens(self, height, limit):
        if height < limit and not self.locked:
            self.ring()
            self.events.info("open")
            return True
        return max(height + 1, limit) in (1, 2)
"""


def test_each_decision_of_a_function_is_turned_round_once() -> None:
    found = [mutant.change for mutant in mutants_of("gate.py", SOURCE)]
    assert sorted(found) == sorted(
        [
            "height < limit and (not self.locked) -> not self.locked",
            "height < limit and (not self.locked) -> height < limit",
            "height < limit -> height <= limit",
            "not self.locked -> self.locked",
            "self.ring() -> pass",
            "return True -> return False",
            "max(height + 1, limit) in (1, 2) -> max(height + 1, limit) not in (1, 2)",
            "max(height + 1, limit) -> min(height + 1, limit)",
            "height + 1 -> height - 1",
        ]
    )


def test_the_code_of_a_mutant_does_what_its_name_says() -> None:
    source = "def passes(a, b):\n    return a < b\n\ndef other(a):\n    return a == 1\n"
    [boundary, equal] = mutants_of("m.py", source)
    assert (boundary.name, equal.name) == ("m.py: passes: a < b -> a <= b", "m.py: other: a == 1 -> a != 1")
    assert FunctionType(boundary.code, {})(1, 1) is True
    assert FunctionType(equal.code, {})(1) is False


def test_a_marked_function_records_its_name_and_does_what_it_did() -> None:
    called: set[tuple[str, str]] = set()
    [opens] = marked("m.py", "def opens(a):\n    return a == 1\n")
    assert FunctionType(opens.code, {"__called__": called})(1) is True
    assert called == {("m.py", "opens")}


def test_reasons_are_read_by_name() -> None:
    assert parse(["# why", "m.py: f: a -> b", "    no other program", "", "m.py: f: c -> d", "  costs time"]) == {
        "m.py: f: a -> b": "no other program",
        "m.py: f: c -> d": "costs time",
    }


@pytest.mark.parametrize("lines", [["a"], ["  r"], ["a", "b", "  r"], ["a", "  r", "a", "  s"], ["a", "  r", "  s"]])
def test_a_name_without_a_reason_and_a_reason_without_a_name_are_refused(lines: list[str]) -> None:
    with pytest.raises(ValueError, match=r"reason"):
        parse(lines)
