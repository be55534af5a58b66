"""The last line of a node that its environment has ended: one sentence, and no traceback (docs/operations.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.wire.command import milena, without_kafka
from tests.wire.properties import combined, write
from tests.wire.waiting import wait_until

SENTENCES = {
    "broker": ("milena: the metadata log has failed: ", "milena: all log directories have failed: "),
    "controller": ("milena: the metadata log cannot be written: ", "milena: the metadata log cannot be synced: "),
}


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_a_full_disk_ends_a_node_with_a_sentence(tmp_path: Path, role: str) -> None:
    with LocalCluster.start(tmp_path, lab=True, topics=["t:1:1"]) as cluster:
        ended = 1 if role == "broker" else cluster.controller.id
        (folder,) = cluster.nodes[ended].log_dirs
        milena("lab", str(ended), "fill_disk", f"path={folder}", "--dir", str(tmp_path))
        wait_until(lambda: cluster.nodes[ended].pid is None, "the node has not ended")
        text = cluster.log(ended)
        last = text.splitlines()[-1]
        assert last.startswith(SENTENCES[role])
        assert f": {folder}" in last and last.endswith(": No space left on device")
        assert "Traceback" not in text


def test_an_error_at_the_start_does_not_show_what_a_config_provider_returned(tmp_path: Path) -> None:
    (tmp_path / "hunter2").touch()
    provider = {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }
    file = write(tmp_path, combined(tmp_path) | provider | {"log.dirs": f"{tmp_path}/${{env:SECRET}}/data"})
    said = milena("node", file, code=1, env={**without_kafka(), "SECRET": "hunter2"}).err
    assert f"{tmp_path}/${{env:SECRET}}/data" in said.splitlines()[-1]
