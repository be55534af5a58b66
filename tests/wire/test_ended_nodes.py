"""The last line of a node that its environment has ended: one sentence, and no traceback (docs/operations.md)."""

from __future__ import annotations

from pathlib import Path

from milena.testing.local_cluster import LocalCluster
from tests.wire.command import milena
from tests.wire.waiting import wait_until


def test_a_full_disk_ends_a_node_with_a_sentence(tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path, lab=True, topics=["t:1:1"]) as cluster:
        (folder,) = cluster.nodes[1].log_dirs
        milena("lab", "1", "fill_disk", f"path={folder}", "--dir", str(tmp_path))
        wait_until(lambda: cluster.nodes[1].pid is None, "the node has not ended")
        log = (tmp_path / "logs" / "broker-1.log").read_text()
        last = log.splitlines()[-1]
        assert last.startswith(("milena: the metadata log has failed: ", "milena: all log directories"))
        assert f": {folder}" in last and last.endswith(": No space left on device")
        assert "Traceback" not in log
