"""Libraries of other projects that the console serves: unchanged, recorded, and small."""

from __future__ import annotations

import hashlib
import json

from milena.report.embedded import licences
from tests.architecture.source import ROOT, tracked

STATIC = ROOT / "milena" / "console" / "static"
VENDORED = STATIC / "vendor"
LIMIT = 300_000
"""The most bytes that the console may add to the wheel."""


def test_each_vendored_file_is_the_one_that_its_record_names() -> None:
    records = json.loads((VENDORED / "vendored.json").read_text())
    for record in records:
        assert record["version"] and record["licence"] and record["source"].startswith("https://"), record
        assert hashlib.sha256((VENDORED / record["file"]).read_bytes()).hexdigest() == record["sha256"], record["file"]
    ours = {"vendored.json", "LICENCES.txt", "htm-preact.d.ts", "uplot.d.ts"}
    assert {record["file"] for record in records} == {file.name for file in VENDORED.iterdir()} - ours


def test_each_vendored_file_has_a_licence() -> None:
    for record in json.loads((VENDORED / "vendored.json").read_text()):
        found = licences([f"vendor/{record['file']}"])
        assert all("Copyright" in one and "--" not in one for one in found), "the text of a comment of HTML"
        assert len(found) == record["licence"].count(",") + 1, record["file"]


def test_all_files_that_the_console_serves_fit_the_limit() -> None:
    files = [path for path in tracked() if path.is_relative_to("milena/console/static")]
    assert 0 < sum((ROOT / path).stat().st_size for path in files) <= LIMIT
