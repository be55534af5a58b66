"""`milena up` and the location of its remote tier: errors, warnings, and unchanged settings after a failure."""

from __future__ import annotations

from pathlib import Path

from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import create_topic
from tests.wire.command import milena, refused

UP = ("up", "--port", "0", "--brokers", "1")


def tier_settings(directory: Path) -> list[str]:
    """Return the lines of the broker's server.properties that configure the tier."""
    lines = (directory / "broker-1" / "server.properties").read_text().splitlines()
    return [line for line in lines if line.startswith("rsm.config.")]


def test_a_tier_that_is_no_folder_is_a_one_line_error_and_changes_nothing(tmp_path: Path) -> None:
    directory, file = tmp_path / "cluster", tmp_path / "file"
    file.touch()
    said = f"the remote tier {file} is not a folder"
    assert refused(*UP, "--dir", str(directory), "--tier", str(file)) == said
    assert refused(*UP, "--dir", str(directory), "--detach", "--tier", str(file)) == said
    assert not (directory / "settings").exists()


def test_another_tier_location_is_warned_of_and_a_failed_start_does_not_change_it(tmp_path: Path) -> None:
    directory, old, new = tmp_path / "cluster", tmp_path / "old", tmp_path / "new"
    with LocalCluster.start(directory, options=["--tier", str(old)]) as running:
        create_topic(running.bootstrap, "t", config={"remote.storage.enable": "true"})
    (old / "kafka-tiered-storage" / "t-0-AAAAAAAAAAAAAAAAAAAAAA").mkdir(parents=True)
    said = refused("up", "--dir", str(directory), "--no-tier")
    assert "You have to delete all topics with the property remote.storage.enable=true" in said
    assert tier_settings(directory) == [f"rsm.config.dir={old}"]
    where = ("--dir", str(directory))
    said = milena("up", "--detach", *where, "--tier", str(new)).err
    milena("down", *where)
    assert said == (
        f"warning: the remote tier was {old} before: what was copied there cannot be read in {new}, as "
        f"t-0-AAAAAAAAAAAAAAAAAAAAAA; start with --tier {old}, or copy it over\n"
    )
    assert tier_settings(directory) == [f"rsm.config.dir={new}"]
    assert milena("up", "--detach", *where, "--tier", str(old)).err == ""
    milena("down", *where)
