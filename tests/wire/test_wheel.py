"""The pure wheel and the wheel with extensions, each in an empty environment, beside a project with its own packages
storage, broker and node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

import pytest

from compiling.modules import compiled_files

ROOT = Path(__file__).resolve().parents[2]
PROJECT = {
    "storage/__init__.py": "VALUE = 'of the project'\n",
    "broker/__init__.py": "VALUE = 'of the project'\n",
    "node/__init__.py": "VALUE = 'of the project'\n",
    "node/server.py": "VALUE = 'of the project'\n",
    "runtime.py": "VALUE = 'of the project'\n",
    "pytest.ini": "[pytest]\nmilena_brokers = 2\n",
    "test_project.py": """
import socket
import subprocess
import sys

import broker
import node.server
import runtime
import storage


def test_a_cluster_beside_the_project(milena_cluster):
    assert all(one.VALUE == "of the project" for one in (broker, node, node.server, runtime, storage))
    assert len(milena_cluster.bootstrap.split(",")) == 2
    for address in milena_cluster.bootstrap.split(","):
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port))).close()


def test_a_cluster_of_its_own(milena_start):
    cluster = milena_start(topics=["orders:2:1"])
    topics = [sys.executable.replace("python", "milena"), "topic", "list", "-b", cluster.bootstrap]
    assert b"orders" in subprocess.run(topics, capture_output=True, check=True).stdout
""",
}

pytestmark = [pytest.mark.slow, pytest.mark.wheel, pytest.mark.timeout(1200)]  # the compiler takes most of the time


class Installed(NamedTuple):
    form: str
    wheel: Path
    binaries: Path
    """The ``bin`` folder of an environment with the wheel, its dependencies and pytest."""


def run(*command: str, cwd: Path, stdin: str = "", variables: Mapping[str, str] | None = None, code: int = 0) -> str:
    """Run a command without MILENA_PURE, because these tests choose the form; return its output."""
    environment = {name: value for name, value in os.environ.items() if name != "MILENA_PURE"} | dict(variables or {})
    done = subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stderr if code else done.stdout


def write_project(folder: Path) -> None:
    for name, content in PROJECT.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)


@pytest.fixture(scope="module", params=["pure", "compiled"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    form = request.param
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if form == "compiled" and shutil.which(compiler) is None:
        pytest.skip(f"there is no C compiler ({compiler})")
    folder = tmp_path_factory.mktemp(form)
    run(sys.executable, "-m", "compiling.wheels", str(folder), "--form", form, cwd=ROOT)
    (wheel,) = folder.glob("milena_kafka-*.whl")  # built from the sdist, so that it has no old files of a build folder
    run(sys.executable, str(ROOT / ".ci" / "make_venv.py"), "venv", cwd=folder)
    binaries = folder / "venv" / "bin"
    run(str(binaries / "python"), "-m", "pip", "install", "--quiet", str(wheel), "pytest", cwd=folder)
    return Installed(form, wheel, binaries)


def test_the_wheel_runs_the_tests_of_another_project(installed: Installed, tmp_path: Path) -> None:
    write_project(tmp_path)
    assert "2 passed" in run(str(installed.binaries / "python"), "-m", "pytest", "-q", "-W", "error", cwd=tmp_path)


@pytest.mark.parametrize("pure", ["", "1"])
def test_the_wheels_command_runs_beside_modules_with_the_names_of_its_packages(
    installed: Installed, tmp_path: Path, pure: str
) -> None:
    write_project(tmp_path)
    chosen = {"MILENA_PURE": pure} if pure else {}

    def milena(*words: str, stdin: str = "") -> str:
        """Run `milena` with the project on the path, as with PYTHONPATH=. and in the project's test runs."""
        variables = {"PYTHONPATH": str(tmp_path), **chosen}
        return run(str(installed.binaries / "milena"), *words, cwd=tmp_path, stdin=stdin, variables=variables)

    where = ("--dir", str(tmp_path / "data"))
    ready = milena("up", "--detach", "--brokers", "1", "--port", "0", "--topic", "orders:2:1", *where)
    to = ("-b", ready.strip().removeprefix("ready bootstrap="))
    try:
        assert milena("status", *where).count(" up ") == 2
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            milena("produce", "orders", "--compression", codec, *to, stdin=f"by {codec}\n")
        read = milena("consume", "orders", "--group", "readers", "--from-beginning", "--max", "5", *to)
        assert sorted(read.splitlines()) == ["by gzip", "by lz4", "by none", "by snappy", "by zstd"]
        assert milena("group", "list", *to).startswith("readers ")
        segments = (tmp_path / "data" / "broker-1" / "data").glob("orders-*/00000000000000000000.log")
        assert "by lz4" in milena("log", "dump", *map(str, segments))
    finally:
        milena("down", *where)
    form = "pure" if pure else installed.form
    logs = [path.read_text().splitlines() for path in (tmp_path / "data" / "logs").glob("*.log")]
    events = [json.loads(line) for log in logs for line in log if line.startswith("{")]
    starts = [event["form"] for event in events if event["event"] == "node starts"]
    assert starts == [form, form]
    module = run(str(installed.binaries / "python"), "-m", "milena", "--version", cwd=tmp_path, variables=chosen)
    assert module == milena("--version")
    assert module.endswith(f" ({form})\n")


def test_the_wheels_only_top_level_name_is_milena(installed: Installed) -> None:
    files = run(
        str(installed.binaries / "python"), "-c",
        "import importlib.metadata as m; print(*sorted({str(f).split('/')[0] for f in m.files('milena-kafka')}))",
        cwd=installed.binaries,
    )  # fmt: skip
    tops = {name for name in files.split() if not name.startswith(("milena_kafka-", ".."))}
    assert tops == {"milena"}
    assert os.path.exists(installed.binaries / "milena")


def test_the_wheel_has_the_scenarios(installed: Installed) -> None:
    """The scenarios are package data, which must be declared."""
    read = "import milena.lab.scenarios.heads as h; print(*sorted(head.id for head in h.all_heads()))"
    found = run(str(installed.binaries / "python"), "-P", "-c", read, cwd=installed.binaries)
    assert found.split() == sorted(path.stem for path in (ROOT / "milena" / "lab" / "scenarios").glob("*.yaml"))


def test_the_wheel_has_all_sources_and_if_compiled_an_extension_for_each_listed_module(
    installed: Installed,
) -> None:
    with zipfile.ZipFile(installed.wheel) as archive:
        names = [name for name in archive.namelist() if not name.startswith("milena_kafka-")]
    kinds = {Path(name).suffix for name in names if Path(name).name != "py.typed"}
    sources = {name for name in names if name.endswith(".py")}
    assert sources == {str(path.relative_to(ROOT)) for path in (ROOT / "milena").rglob("*.py")}
    suffix = EXTENSION_SUFFIXES[0]
    if installed.form == "pure":
        assert installed.wheel.name.endswith("-py3-none-any.whl")
        expected = set()
    else:
        assert sysconfig.get_platform().replace("-", "_").replace(".", "_") in installed.wheel.name
        expected = {str(path.relative_to(ROOT).with_suffix(suffix)) for path in compiled_files()}
        expected.add(f"milena/compiled__mypyc{suffix}")
    assert {name for name in names if name.endswith(suffix)} == expected
    assert kinds - {".so"} == {".py", ".pyi", ".tsv", ".yaml"}


def test_pure_or_compiled_form_can_be_chosen(installed: Installed, tmp_path: Path) -> None:
    python, milena = (str(installed.binaries / command) for command in ("python", "milena"))
    extensions = "import milena.broker.server, sys; print(sum(str(getattr(one, '__file__', '')).endswith('.so') for "
    extensions += "name, one in sys.modules.items() if name.startswith('milena')))"

    def count(variables: Mapping[str, str]) -> int:
        return int(run(python, "-P", "-c", extensions, cwd=tmp_path, variables=variables))

    pure, compiled = {"MILENA_PURE": "1"}, {"MILENA_PURE": "0"}
    assert count(pure) == 0
    if installed.form == "compiled":
        assert count({}) == count(compiled) > 100
    else:
        assert count({}) == 0
        refused = run(milena, "--version", cwd=tmp_path, variables=compiled, code=1)
        assert refused.startswith("milena: MILENA_PURE=0, but ")
        assert refused.endswith("is pure Python; a wheel for this platform contains the compiled form\n")


def test_a_stack_trace_names_file_and_line(installed: Installed, tmp_path: Path) -> None:
    raising = "from milena.protocol.uuids import from_text; from_text('short')"
    trace = run(str(installed.binaries / "python"), "-P", "-c", raising, cwd=tmp_path, code=1)
    lines = (ROOT / "milena" / "protocol" / "uuids.py").read_text().splitlines()
    first = next(number for number, line in enumerate(lines, 1) if line.strip().startswith("raise ValueError("))
    assert f'milena/protocol/uuids.py", line {first}, in from_text' in trace
