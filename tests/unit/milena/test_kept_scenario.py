"""What `milena scenario run --keep` prints about the cluster that it leaves running."""

from __future__ import annotations

from pathlib import Path

from milena.commands.scenario.kept import KeptCluster
from milena.lab.scenarios.script import load
from milena.up import nodes_file
from milena.up.layout import ClusterDir


def kept(folder: Path, scenario: str, pids: list[int | None]) -> KeptCluster:
    brokers: list[nodes_file.Entry] = [
        {
            "id": number,
            "roles": ["broker"],
            "pid": pid,
            "listeners": {"PLAINTEXT": f"127.0.0.1:{9091 + number}"},
            "log.dirs": [],
        }
        for number, pid in enumerate(pids, 1)
    ]
    nodes_file.write(ClusterDir(str(folder)).nodes, brokers)
    return KeptCluster(str(folder), load(scenario))


def test_the_nodes_and_commands_are_printed(tmp_path: Path) -> None:
    assert kept(tmp_path, "kip405_5", [11, 12, 13]).lines() == [
        f"The cluster is left running in {tmp_path}",
        "  bootstrap servers 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094",
        "  A is broker-1: 127.0.0.1:9092",
        "  B is broker-2: 127.0.0.1:9093",
        "  C is broker-3: 127.0.0.1:9094",
        "Try:",
        "  kcat -b 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094 -L",
        "  kcat -b 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094 -C -t t -p 0 -o beginning -e -f '%o: %s\\n'",
        f"  milena lab broker-1 describe_partition topic=t partition=0 --dir {tmp_path}",
        f"  milena lab broker-1 rules --dir {tmp_path}    # held requests; `release rule=N` releases them",
        f"  milena tier ls --dir {tmp_path}",
        f"  milena status --dir {tmp_path}",
        f"  milena down --dir {tmp_path}",
    ]


def test_commands_are_for_a_node_that_runs(tmp_path: Path) -> None:
    lines = kept(tmp_path, "kip279_unclean", [None, 12]).lines()
    assert lines[1:4] == [
        "  bootstrap servers 127.0.0.1:9093",
        "  A is broker-1: down",
        "  B is broker-2: 127.0.0.1:9093",
    ]
    assert any(line.startswith("  milena lab broker-2 describe_partition") for line in lines)
    assert not any("tier" in line for line in lines)


def test_a_closed_tier_is_named_with_the_command_that_opens_it(tmp_path: Path) -> None:
    (tmp_path / "tier.hidden").mkdir()
    lines = kept(tmp_path, "kip405_5", [11, 12, 13]).lines()
    assert lines[5] == f"  the tier is closed; to open it: mv -T {tmp_path}/tier.hidden {tmp_path}/tier"
