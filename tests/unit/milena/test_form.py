"""``MILENA_PURE`` selects the build, and a compiled build of other sources is refused with one sentence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from milena.form import NOTE, TREE, note_of

ROOT = Path(__file__).resolve().parents[3]
WHERE = "import milena.one; print(milena.one.__file__)"


def python(folder: Path, code: str, pure: str | None) -> subprocess.CompletedProcess[str]:
    """A new interpreter whose ``milena`` is the one in ``folder``."""
    environment = {name: value for name, value in os.environ.items() if name != "MILENA_PURE"}
    environment |= {"PYTHONPATH": str(folder)} | ({} if pure is None else {"MILENA_PURE": pure})
    return subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, env=environment, cwd=folder
    )


def refusal(folder: Path, pure: str = "0") -> str:
    done = python(folder, WHERE, pure)
    assert (done.returncode, done.stdout) == (1, "")
    (sentence,) = done.stderr.splitlines()
    return sentence


def place(folder: Path, pure: str | None) -> Path:
    """The file from which a module was imported, relative to the checkout."""
    done = python(folder, WHERE, pure)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip()).relative_to(folder)


def compiled(package: Path, suffix: str = EXTENSION_SUFFIXES[0]) -> Path:
    """Create the shared library by which a package counts as compiled."""
    (package / f"compiled__mypyc{suffix}").touch()
    return package


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a package of three modules and its compiled tree."""
    package = tmp_path / "milena"
    package.mkdir()
    for name in ("__init__.py", "form.py"):
        shutil.copy2(ROOT / "milena" / name, package / name)
    (package / "one.py").write_text("VALUE = 1\n")
    (tmp_path / "compiling").mkdir()
    (tmp_path / "compiling" / "modules.toml").touch()
    compiled(Path(shutil.copytree(package, tmp_path / TREE / "milena")))
    (tmp_path / TREE / NOTE).write_text(note_of(str(package)))
    return tmp_path


def test_a_checkout_runs_its_sources_unless_the_compiled_build_is_selected(checkout: Path) -> None:
    assert place(checkout, None) == place(checkout, "1") == Path("milena", "one.py")
    assert place(checkout, "0") == Path(TREE, "milena", "one.py")


def test_sources_with_a_new_modification_time_and_the_same_content_need_no_new_build(checkout: Path) -> None:
    os.utime(checkout / "milena" / "one.py", ns=(1, 1))
    assert place(checkout, "0") == Path(TREE, "milena", "one.py")


@pytest.mark.parametrize("change", ["edited", "edited in its size's place", "added", "removed"])
def test_a_compiled_tree_of_other_sources_is_refused(checkout: Path, change: str) -> None:
    one = checkout / "milena" / "one.py"
    match change:
        case "edited":
            one.write_text("VALUE = 1\nMORE = 2\n")
        case "added":
            (checkout / "milena" / "two.py").touch()
        case "removed":
            one.unlink()
        case _:
            one.write_text("VALUE = 2\n")
            os.utime(one, ns=(1, 1))
    assert refusal(checkout) == f"milena: the compiled form in {TREE} is outdated; `make compiled` builds it again"


def test_a_lock_file_of_an_editor_does_not_count_as_source(checkout: Path) -> None:
    (checkout / "milena" / ".#one.py").symlink_to("editor@host.1")
    assert place(checkout, "0") == Path(TREE, "milena", "one.py")


def test_the_error_for_a_missing_compiled_tree_names_the_command_that_builds_it(checkout: Path) -> None:
    (checkout / TREE / NOTE).unlink()
    sentence = f"milena: MILENA_PURE=0, but there is no compiled form in {TREE}; `make compiled` builds it"
    assert refusal(checkout) == sentence


@pytest.mark.parametrize("note", [b"", b"{}", b"\xff"])
def test_a_damaged_note_of_the_build_is_refused(checkout: Path, note: bytes) -> None:
    (checkout / TREE / NOTE).write_bytes(note)
    assert "`make compiled`" in refusal(checkout)


def test_a_compiled_tree_for_another_python_is_refused(checkout: Path) -> None:
    (checkout / TREE / "milena" / f"compiled__mypyc{EXTENSION_SUFFIXES[0]}").unlink()
    compiled(checkout / TREE / "milena", ".cpython-300-none.so")
    assert refusal(checkout) == (
        f"milena: the compiled form in {TREE} is for another Python; `make compiled` builds it again"
    )


def test_the_error_for_an_installation_without_extensions_does_not_mention_make(checkout: Path) -> None:
    shutil.rmtree(checkout / "compiling")
    package = checkout / "milena"
    sentence = (
        f"milena: MILENA_PURE=0, but {package} is pure Python; a wheel for this platform contains the compiled form"
    )
    assert refusal(checkout) == sentence


def test_another_value_of_milena_pure_is_refused(checkout: Path) -> None:
    sentence = "milena: MILENA_PURE is 'yes'; it must be 1 (pure Python) or 0 (the compiled form)"
    assert refusal(checkout, "yes") == sentence


def test_milena_pure_1_runs_the_sources_although_there_are_extensions(checkout: Path) -> None:
    package = compiled(checkout / "milena")
    (package / f"one{EXTENSION_SUFFIXES[0]}").write_bytes(b"no library")
    assert place(checkout, "1") == Path("milena", "one.py")
    for pure in (None, "0"):
        assert "ImportError" in python(checkout, WHERE, pure).stderr


RAISING = """
import asyncio, json, traceback
from milena.protocol.uuids import from_text
from milena.runtime.tcp.addresses import bind

async def in_a_coroutine():
    await bind(asyncio.get_running_loop(), "127.0.0.1", -1)

found = []
for work in (lambda: from_text("short"), lambda: asyncio.run(in_a_coroutine())):
    try:
        work()
    except Exception as error:
        found.append([(one.filename, one.lineno, one.name) for one in traceback.extract_tb(error.__traceback__)])
print(json.dumps(found))
"""


def test_a_stack_trace_of_compiled_code_names_file_line_and_function() -> None:
    done = python(ROOT, RAISING, "0")
    if "`make compiled`" in done.stderr:
        pytest.skip("there is no compiled form of these sources: `make compiled`")
    assert done.returncode == 0, done.stderr
    function, coroutine = json.loads(done.stdout)
    addresses = "milena/runtime/tcp/addresses.py"
    for (file, line, name), place, text in (
        (function[-1], ("milena/protocol/uuids.py", "from_text"), "raise ValueError("),
        (coroutine[-1], (addresses, "resolve"), "raise OSError("),
        (coroutine[-2], (addresses, "bind"), "await resolve("),
    ):
        assert (file, name) == place
        assert text in (ROOT / file).read_text().splitlines()[line - 1]
