"""Each reference of docs/documents.md exists: the code, the step of a scenario, the test. docs/scenarios.md lists all.

References are in backticks: ``milena/a/b.py:Class.name``, ``scenario:4 beginning of the step's title``, with
``scenario@variant`` for another variant than the first, and ``tests/a/test_b.py::test_name``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from milena.lab.scenarios.heads import all_heads, all_scenarios
from milena.lab.scenarios.script import ScriptError, load
from tests.architecture.source import ROOT, text, tree

PAGE = Path("docs/documents.md")
QUOTED = re.compile(r"`([^`\n]+)`")
CODE = re.compile(r"(milena/[\w/]+\.py):([\w.]+)")
TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+(?:::\w+)?)")
STEP = re.compile(r"(\w+)(?:@(\w+))?:(\d+) (.+)")
ROW = re.compile(r"^\| (`[^|]+) \|", re.MULTILINE)
"""The first cell of a table's row."""
DOCUMENTS = ("KIP-405", "KIP-279", "KIP-903", "KIP-1272")


def references() -> list[str]:
    return QUOTED.findall(text(PAGE))


def names_in(path: str) -> set[str]:
    """The functions, classes and constants of a module, and the members of its classes as ``Class.name``."""
    return set(_names(tree(Path(path)).body, "")) if (ROOT / path).exists() else set()


def _names(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                yield prefix + name
            case ast.ClassDef(name):
                yield prefix + name
                yield from _names(node.body, f"{prefix}{name}.")
            case ast.AnnAssign(ast.Name(name)) | ast.Assign([ast.Name(name)]):
                yield prefix + name


def wrong_step(scenario: str, variant: str | None, number: int, words: str) -> str | None:
    """What is wrong with the reference to a step."""
    try:
        steps = load(scenario, variant).steps
    except ScriptError as error:
        return str(error)
    title = steps[number - 1].title if 1 <= number <= len(steps) else None
    if title is not None and title.startswith(words):
        return None
    known = "; ".join(f"{at} {step.title}" for at, step in enumerate(steps, 1))
    return f"{scenario}@{variant} has no step {number} {words}. There are: {known}"


def test_the_code_that_the_page_names_is_there() -> None:
    named = [match.groups() for one in references() if (match := CODE.fullmatch(one))]
    missing = [f"{path}:{name}" for path, name in named if name not in names_in(path)]
    assert named
    assert not missing, "\n".join(missing)


def test_the_tests_that_the_page_names_are_there() -> None:
    named = [match.groups() for one in references() if (match := TEST.fullmatch(one))]
    missing = [f"{path}::{name}" for path, name in named if name.replace("::", ".") not in names_in(path)]
    assert named
    assert not missing, "\n".join(missing)


def test_the_steps_that_the_page_names_are_there() -> None:
    named = [match.groups() for one in references() if (match := STEP.fullmatch(one)) and match[1] in all_scenarios()]
    wrong = [wrong_step(scenario, variant, int(number), words) for scenario, variant, number, words in named]
    assert named
    assert not any(wrong), "\n".join(one for one in wrong if one)


def test_every_reference_has_a_known_form() -> None:
    """A misspelt path or scenario would otherwise not be checked."""
    doubtful = [
        one
        for one in references()
        if (one.startswith(("milena/", "tests/")) and not (CODE.fullmatch(one) or TEST.fullmatch(one)))
        or ((step := STEP.fullmatch(one)) and step[1] not in all_scenarios())
    ]
    assert not doubtful, "\n".join(doubtful)


def test_the_list_of_scenarios_is_complete() -> None:
    listed = {name for row in ROW.findall(text(Path("docs/scenarios.md"))) for name in QUOTED.findall(row)}
    prefixes = tuple(name.removesuffix("*") for name in listed if name.endswith("*"))
    missing = [one for one in all_scenarios() if one not in listed and not one.startswith(prefixes)]
    unknown = [one for one in listed if not one.endswith("*") and one not in all_scenarios()]
    assert (missing, unknown) == ([], [])


def test_the_page_has_every_scenario_of_the_documents() -> None:
    named = {match[1] for one in references() if (match := re.match(r"(\w+)(?:[@:]|$)", one))}
    scenarios = [head.id for head in all_heads() if head.document.startswith(DOCUMENTS)]
    assert scenarios
    assert [one for one in scenarios if one not in named] == []
