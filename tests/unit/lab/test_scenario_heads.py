"""The heads of scenario files, which `milena scenario list` shows without parsing YAML."""

from __future__ import annotations

import pytest

from milena.lab.scenarios.heads import OTHER, PROCESSES, SIMULATION, Head, all_heads, head_of
from milena.lab.scenarios.script import source, variants_of, worlds_of


@pytest.mark.parametrize("head", all_heads(), ids=lambda head: head.id)
def test_the_head_of_a_file_is_what_its_yaml_says(head: Head) -> None:
    data = source(head.id)
    parsed = data["id"], data["title"], data["document"], tuple(variants_of(data)), tuple(worlds_of(data))
    assert tuple(head) == parsed
    assert head.group != OTHER


def test_a_head_ends_at_the_steps_and_ignores_other_nested_keys() -> None:
    lines = """# a comment: with a colon
id: some
title: One: two
config:
  retention.ms: 1
variants:
  plain: {}
  # old: {}
  late:
    peers: {A: old}
only:
  simulation: Why it is so.
steps:
  - title: another title
title: not this one
""".splitlines()
    assert head_of(lines) == Head("some", "One: two", "", ("plain", "late"), (SIMULATION,))


def test_without_variants_and_restrictions_a_head_has_the_defaults() -> None:
    head = head_of(["id: some", "title: Some", "document: KIP-1", "cases:"])
    assert head == Head("some", "Some", "KIP-1", ("plain",), (SIMULATION, PROCESSES))
    assert head.group == OTHER
