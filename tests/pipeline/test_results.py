"""A job's folder: one job at a time, and files of others are not touched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.lock import LOCK, locked_folder
from milena.pipeline.jobs.results import DONE, PAGE, STATE, Results, shown

TABLES = ["first", "second"]
HOLDER = """
import sys
from milena.pipeline.jobs.lock import locked_folder
with locked_folder(sys.argv[1], "job.json", "results"):
    print("held", flush=True)
    sys.stdin.read()
"""


def ended(folder: Path, **settings: str) -> None:
    """A finished run, which has written its tables."""
    with Results.begun(str(folder), "profile", settings, TABLES) as results:
        for name in TABLES:
            Path(results.path(name)).mkdir(exist_ok=True)
            Path(results.path(name), "part.parquet").write_text("rows")
        results.done(0)
        results.finish("<p>page</p>")


def test_a_second_job_in_a_folder_is_refused_while_one_runs(tmp_path: Path) -> None:
    folder = str(tmp_path / "out")
    process = subprocess.Popen([sys.executable, "-c", HOLDER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    try:
        assert process.stdout.readline() == b"held\n"
        for _ in range(2):
            with (
                pytest.raises(PipelineError, match=r"another job uses .*out: wait for it, or name another"),
                Results.begun(folder, "audit", {}, TABLES),
            ):
                raise AssertionError("never here")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    with Results.begun(folder, "audit", {}, TABLES) as results:  # the lock was released with the end of its holder
        assert results.plan is None
    with locked_folder(folder, STATE, "results of a job"):
        pass


def test_the_next_run_removes_only_the_files_of_the_last_run(tmp_path: Path) -> None:
    ended(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "plots").mkdir()
    with Results.begun(str(tmp_path), "profile", {}, TABLES) as results:
        there = {one.name for one in tmp_path.iterdir()}
        assert (there, results.units_done()) == ({STATE, LOCK, "notes.txt", "plots"}, 0)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("step", range(4))
def test_a_run_killed_while_it_removes_old_files_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    ended(tmp_path)
    left = [step]
    real = shutil.rmtree

    def remove(path: str) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        real(path)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", remove)
        patch.setattr(os, "unlink", killed)
        with Results.begun(str(tmp_path), "profile", {}, TABLES):
            raise AssertionError("never here")
    with Results.begun(str(tmp_path), "profile", {"topics": "other"}, TABLES) as results:
        assert {one.name for one in tmp_path.iterdir()} == {STATE, LOCK}
        assert results.units_done() == 0 and results.plan is None


def test_a_job_killed_before_it_wrote_its_state_is_started_again(tmp_path: Path) -> None:
    for name in (LOCK, f"{STATE}.new"):
        (tmp_path / name).touch()
    ended(tmp_path)
    assert (tmp_path / PAGE).exists() and (tmp_path / DONE).exists()


def test_a_folder_with_files_of_others_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with (
        pytest.raises(PipelineError, match="is not empty and does not contain results of a job: name another folder"),
        Results.begun(str(tmp_path), "audit", {}, TABLES),
    ):
        raise AssertionError("never here")
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_path_that_is_no_folder_or_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("file", "file/below", "x" * 300):
        with (
            pytest.raises(PipelineError, match=r"(file|below|xxx) cannot be written to: "),
            Results.begun(str(tmp_path / folder), "audit", {}, TABLES),
        ):
            raise AssertionError("never here")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / STATE).mkdir()
    with (
        pytest.raises(PipelineError, match=r"job\.json cannot be read: Is a directory"),
        Results.begun(str(tmp_path / "out"), "audit", {}, TABLES),
    ):
        raise AssertionError("never here")


def test_a_failed_write_is_reported_with_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with Results.begun(str(tmp_path), "audit", {}, TABLES) as results:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(PipelineError, match=r"done/7 cannot be written: No space left on device"):
            results.done(7)
        assert not results.is_done(7)


def test_results_do_not_have_secrets_of_a_file_system() -> None:
    assert shown({"tier": "s3://b", "storageOptions": '{"secret": "x"}', "metadata": ""}) == {"tier": "s3://b"}
