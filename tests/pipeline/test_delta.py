"""The job ``export`` into Delta Lake."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.connector import NoConnector, jars_of
from tests.pipeline.made_tiers import MadeTier, run


@pytest.mark.timeout(400)
def test_a_unit_that_delta_committed_but_the_export_did_not_record_is_not_written_again(
    made: MadeTier, tmp_path: Path
) -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs a JDK")
    try:
        jars = jars_of("delta")
    except NoConnector as reason:
        pytest.skip(f"without Delta Lake: {reason}")
    made.add(run(0, 100))
    command = [sys.executable, "-m", "tests.pipeline.delta_run", jars, str(made.folder), str(tmp_path / "table")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "rows 100 100 100", done.stderr[-3000:]
