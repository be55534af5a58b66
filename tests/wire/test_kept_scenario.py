"""`milena scenario run --until STEP --keep` leaves the cluster running at that step."""

from __future__ import annotations

import json
from pathlib import Path

from milena.up.processes import runs
from tests.wire.command import milena

SCENARIO = """
id: mine
title: A holds what B fetches, and then loses power
replicas: [A, B]
variants: {plain: {peers: {B: kip101}}}
steps:
  - title: both have a record
    do:
      - start: [A, B]
      - topic: {replicas: [A, B]}
      - produce: {to: A, values: [0]}
      - wait: {log_end: {B: 1}}
      - hold: {at: A, api: FETCH, from: B, as: the next ones}
    expect:
      same: [A, B]
  - title: A loses power
    do:
      - power_off: A
"""


def test_the_cluster_runs_on_after_the_step_until_it_is_stopped(tmp_path: Path) -> None:
    scenario, directory = tmp_path / "mine.yaml", tmp_path / "kept"
    scenario.write_text(SCENARIO)
    where = ("--dir", str(directory))
    run = milena("scenario", "run", str(scenario), "--on", "processes", "--until", "1", "--keep", "--json", *where)
    try:
        (found,) = json.loads(run.out)
        assert (found["outcome"], found["steps"], found["passed"]) == ("passed", 1, 1)
        assert (found["directory"], len(found["run"]["steps"])) == (str(directory), 1)
        nodes = json.loads(milena("status", *where, "--json").out)
        assert [node["state"] for node in nodes] == ["up", "up", "up"]
        assert found["bootstrap"] == ",".join(node["listeners"]["PLAINTEXT"] for node in nodes[:2])
        read = milena("consume", "t", "-b", found["bootstrap"], "--from-beginning", "--exit")
        assert read.out == "msg 0\n"
        rules = json.loads(milena("lab", "broker-1", "rules", *where).out)
        assert [rule["api"] for rule in rules if rule["command"] == "hold"] == ["FETCH"]
    finally:
        milena("down", *where)
    assert not any(runs(node["pid"]) for node in nodes)
