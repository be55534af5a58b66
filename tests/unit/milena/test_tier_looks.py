"""The output of `milena tier ls` and `verify` for a tier in a folder, and the names that they refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from milena.command_line.errors import UserError
from milena.commands.tier.command import main
from milena.commands.tier.listing import lines
from milena.runtime.files import RealDisk
from milena.tiered.store import tier_names
from tests.unit.tiered.segments import PARTITION
from tests.unit.tiered.whole_tier import write_segment


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    """A tier with topic ``t``, whose partition 0 has offsets 0 to 19 in two segments."""
    disk = RealDisk()
    write_segment(disk, str(tmp_path), 1, 0, 9, {0: 0})
    write_segment(disk, str(tmp_path), 2, 10, 19, {0: 10}, checkpoint={0: 0})
    disk.close()
    return tmp_path


@pytest.mark.parametrize("command", ["ls", "verify"])
@pytest.mark.parametrize("word", ["nix", "t:9"])
def test_an_unknown_name_is_refused(tier: Path, command: str, word: str) -> None:
    with pytest.raises(UserError, match=f"^{word} is neither in the tier nor in its metadata$"):
        main([command, "t", word, "--tier", str(tier)])
    with pytest.raises(UserError, match=re.escape("tt is neither in the tier nor in its metadata (did you mean t?)")):
        main([command, "tt", "--tier", str(tier)])


def test_verify_prints_the_place_of_the_tier_and_a_summary(tier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "t:0", "--tier", str(tier)]) == 0
    where, summary = capsys.readouterr().out.splitlines()
    assert where == f"tier {tier}, no metadata topic"
    assert re.fullmatch(r"1 partition, 2 segments, \d+ bytes, no findings", summary)


def test_the_total_is_the_sum_of_the_rows_and_a_truncated_log_is_reported(
    tier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [log, _] = sorted(tier.glob("*/*/*.log"))
    log.write_bytes(log.read_bytes()[:-100])
    main(["ls", "--tier", str(tier), "--json"])
    plain = json.loads(capsys.readouterr().out)
    assert (plain["tier"], plain["metadata"]) == (str(tier), [])
    segment = plain["segments"][0]
    segment["size"] += 100  # the size that metadata would have
    head, _, *rows = lines(plain)
    sizes = [int(row.split()[-3 if "?" in row else -4]) for row in [rows[0].partition("  log has")[0], rows[1]]]
    total = sum(path.stat().st_size for path in tier.glob("*/*/*"))
    assert f"2 segments  {total} bytes" in head and sum(sizes) == total
    assert rows[0].endswith(f"  log has {segment['size'] - 100} of {segment['size']} bytes")


def test_an_empty_folder_does_not_count_as_a_partition(tier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tier / tier_names.partition_folder(PARTITION).replace("/t-0-", "/t-1-")).mkdir()
    assert main(["verify", "--tier", str(tier)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 partition, 2 segments, ")


@pytest.mark.parametrize("command", [["ls"], ["verify"], ["fetch", "t:0"], ["show", "A"]])
def test_storage_options_without_a_url_or_that_are_no_json_are_refused(tier: Path, command: list[str]) -> None:
    for place, sentence in (
        (str(tier), f"--storage-options needs a URL, but the tier is the folder {tier}"),
        ("memory://x", "--storage-options {bad: not a JSON object"),
    ):
        with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
            main([*command, "--tier", place, "--storage-options", "{bad"])
