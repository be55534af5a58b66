"""``make compiled`` says with one sentence why it cannot, and makes what is missing."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from compiling import build
from milena.form import NOTE, TREE


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One of two modules, whose compilation is noted in the tree and makes their extensions."""
    package = tmp_path / "milena"
    package.mkdir()
    modules = [package / "one.py", package / "two.py"]
    for module in modules:
        module.write_text("VALUE = 1\n")

    def compile_all(tree: Path) -> None:
        for path in build._missing(tree):
            path.touch()
        with (tree / "runs").open("a") as runs:
            runs.write("1")

    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "compiled_files", lambda: modules)
    monkeypatch.setattr(build, "_key", lambda: {"sources": modules[0].read_text()})
    monkeypatch.setattr(build, "_compile", compile_all)
    monkeypatch.setattr(build, "_expect_compiler", lambda: None)
    return tmp_path


def runs(checkout: Path) -> int:
    return len((checkout / TREE / "runs").read_text())


def test_what_is_unchanged_is_not_compiled_again(checkout: Path) -> None:
    build.main()
    build.main()
    assert runs(checkout) == 1
    (checkout / "milena" / "one.py").write_text("VALUE = 2\n")
    build.main()
    assert runs(checkout) == 2


def test_extensions_that_were_removed_are_made_again(checkout: Path) -> None:
    build.main()
    next((checkout / TREE / "milena").glob("two.*.so")).unlink()
    build.main()
    assert runs(checkout) == 2
    assert not build._missing(checkout / TREE)


def test_an_interrupted_build_leaves_nothing_that_is_taken(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build.main()
    (checkout / "milena" / "one.py").write_text("VALUE = 2\n")

    def interrupted(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(build, "_compile", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build.main()
    assert not (checkout / TREE / NOTE).exists()
    build.main()
    assert runs(checkout) == 2
    assert (checkout / TREE / NOTE).exists()


def test_a_tree_of_now_is_left_as_it_is_for_who_runs_it(checkout: Path) -> None:
    build.main()
    before = {path: path.stat().st_mtime_ns for path in (checkout / TREE).rglob("*")}
    with (checkout / TREE / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build.main()
    assert {path: path.stat().st_mtime_ns for path in (checkout / TREE).rglob("*")} == before


def test_a_second_build_at_once_is_refused(checkout: Path) -> None:
    build.main()
    (checkout / "milena" / "one.py").write_text("VALUE = 2\n")
    with (checkout / TREE / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SystemExit, match="another build is under way"):
            build.main()
    assert (checkout / TREE / NOTE).exists()


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    with pytest.raises(SystemExit, match="there is no no-such-compiler: install one, or set CC"):
        build._expect_compiler()
