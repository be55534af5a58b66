"""Counts that may only get better. Whoever improves one writes the new number here."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from tests.architecture.graph import circles, import_graph
from tests.architecture.source import modules, text, tracked, tree

RESPONSE = "the decoded response: the key says which, and callers annotate it (milena/protocol/apis)"
VERB = "JSON of any verb"
ANY = {
    "broker/controller_link/controller_link.py": (1, RESPONSE),
    "broker/follower/leader_link.py": (1, RESPONSE),
    "command_line/options.py": (1, "a command's values: what type one has is for its option to say"),
    "config/topic_config.py": (1, "fields by name, as the keys' types say; a test compares them"),
    "lab/chaos/health.py": (1, RESPONSE),
    "lab/histories/events.py": (2, "fields of any event, from JSON"),
    "lab/invariants/images.py": (1, "the name of an entry, whose type is its kind's"),
    "lab/load/group_client.py": (1, RESPONSE),
    "lab/scenarios/driver.py": (1, VERB),
    "lab/scenarios/reading.py": (1, "YAML: offsets by names that are not fixed"),
    "lab/scenarios/script.py": (1, "YAML: parts of a scenario's file"),
    "lab/scenarios/simulated.py": (1, VERB),
    "lab/scenarios/stage.py": (6, "YAML: what each action takes; responses, verbs and values of any kind"),
    "lab/world/loop.py": (1, "asyncio's type"),
    "node/api.py": (5, "modules are found by name: each says what it uses of its node, and what its request is"),
    "node/client/cluster.py": (1, RESPONSE),
    "node/client/membership.py": (1, RESPONSE),
    "node/links/asking.py": (1, RESPONSE),
    "node/links/outgoing.py": (3, RESPONSE),
    "node/metadata/replay.py": (1, "each effect takes the records of its key in the table"),
    "node/rules/rule_topics.py": (1, "a message of any API, read by the names of fields that it may have"),
    "node/serving/dispatch.py": (1, "the node, of which each API module says what it uses"),
    "node/serving/verbs.py": (2, VERB),
    "pipeline/filters.py": (3, "values of any column, which Spark compares with"),
    "pipeline/jobs/rows.py": (1, "a row of a table"),
    "pipeline/options.py": (1, "what a JSON object has"),
    "pipeline/sink.py": (3, "values of columns of different types"),
    "protocol/requests/messages.py": (9, "the message of any key and version; fields that a version lacks"),
    "protocol/schemas/schema.py": (2, "dataclasses of any schema"),
    "protocol/schemas/steps.py": (3, "the same for the elements of an array"),
    "protocol/schemas/structs.py": (5, "values of any kio type, each written by the function made for its type"),
    "runtime/process.py": (1, "asyncio's type"),
    "runtime/tcp/addresses.py": (1, "the socket module's addresses differ by family"),
    "steering/caller.py": (1, VERB),
    "testing/pytest_plugin.py": (1, "the arguments of LocalCluster.start, passed on"),
    "testing/scenario_processes.py": (1, VERB),
    "tiered/reading/reader_pool.py": (
        2,
        "reads of different types stand in one table; each has readers of its own type",
    ),
    "tiered/store/fsspec_system.py": (1, "fsspec has no types"),
}
"""``Any`` in the product by file, without imports: how often, and why. Goal: below 100, and no new ones."""
CITATIONS = 0
"""References that a reader of the repository cannot follow."""
INVARIANTS = 81
"""Places where an invariant is checked as the state changes (``milena.protocol.invariants``). It may only rise."""
LOOSE_MODULES = 25
"""Modules directly in one folder; ``apis`` has one for each API and is exempt."""
CIRCLES = 0
"""Groups of modules that import each other."""
CIRCLES_OF_TYPES = 4
"""Groups of modules that import each other when imports for type checkers count, too."""

UNRESOLVED = re.compile(
    r"kafka-behaviour|\bdocument 00\d|(?<![\w-])\((?:[A-H]\d+(?:\.\d+)?(?:, |; | to |-))*[A-H]\d+(?:\.\d+)?\)"
)


def product() -> list[Path]:
    return [path for path in modules() if path.parts[0] == "milena"]


def test_each_any_has_a_reason() -> None:
    found = {str(path.relative_to("milena")): _count_any(path) for path in product()}
    reasons = {path: count for path, (count, _) in ANY.items()}
    assert {path: count for path, count in found.items() if count} == reasons


def _count_any(path: Path) -> int:
    return sum(isinstance(part, ast.Name) and part.id == "Any" for part in ast.walk(tree(path)))


def test_references_can_be_followed() -> None:
    texts = [path for path in tracked() if path.suffix in (".py", ".md") and path.name != "test_counts.py"]
    found = sum(len(UNRESOLVED.findall(text(path))) for path in texts)
    assert found == CITATIONS, f"{found} references that cannot be followed; if less than {CITATIONS}, write it here"


def test_invariants_become_more() -> None:
    found = sum(_checks_invariant(part) for path in product() for part in ast.walk(tree(path)))
    assert found == INVARIANTS, f"{found} invariants are checked; if that is more than {INVARIANTS}, write it here"


def _checks_invariant(part: ast.AST) -> bool:
    """``raise BrokenInvariant(...)``, or ``raise self._broken(...)``, which adds the numbers of its owner."""
    if not isinstance(part, ast.Raise) or not isinstance(part.exc, ast.Call):
        return False
    raised = part.exc.func
    return (raised.id if isinstance(raised, ast.Name) else getattr(raised, "attr", "")) in (
        "BrokenInvariant",
        "_broken",
    )


def test_no_folder_is_crowded() -> None:
    loose = Counter(path.parent for path in product() if path.name != "__init__.py" and path.parent.name != "apis")
    assert not {str(folder): count for folder, count in loose.items() if count > LOOSE_MODULES}


def test_no_module_imports_itself_by_others() -> None:
    found = circles(import_graph(product(), type_checking=False))
    assert len(found) == CIRCLES, found


def test_circles_of_types_become_fewer() -> None:
    found = circles(import_graph(product(), type_checking=True))
    assert len(found) == CIRCLES_OF_TYPES, found
