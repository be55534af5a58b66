"""A node's process: its signals, its parent, its loop, its failures. Each test is a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WAITS = """
async def main(runtime, stop):
    print("ready", type(asyncio.get_running_loop()).__module__, flush=True)
    await stop.requested.wait()
    print("stopping:", stop.reason, flush=True)
    {stopping}
    return 3
"""
START = """
import asyncio
from milena.runtime.process import run_node, settle_memory
{main}
raise SystemExit(run_node(main))
"""


def start(main: str, *, pass_fds: tuple[int, ...] = (), **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START.format(main=main)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
        pass_fds=pass_fds,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_requests_the_stop(number: signal.Signals) -> None:
    with start(WAITS.format(stopping="")) as process:
        first_line(process)
        process.send_signal(number)
        output, errors = process.communicate(timeout=20)
        assert (output, errors, process.returncode) == (f"stopping: {number.name}\n", "", 3)


def test_a_second_signal_ends_the_process_at_once() -> None:
    with start(WAITS.format(stopping="await asyncio.Event().wait()")) as process:
        first_line(process)
        process.terminate()
        first_line(process)
        process.terminate()
        assert process.wait(timeout=20) == 128 + signal.SIGTERM


def test_the_end_of_the_parent_requests_the_stop() -> None:
    read, write = os.pipe()
    with start(WAITS.format(stopping=""), pass_fds=(read,), MILENA_PARENT_FD=str(read)) as process:
        os.close(read)
        first_line(process)
        os.close(write)
        output, errors = process.communicate(timeout=20)
        assert (output, errors, process.returncode) == ("stopping: parent process ended\n", "", 3)


@pytest.mark.parametrize(("wanted", "module"), [("asyncio", "milena.runtime.loop_idle"), ("uvloop", "uvloop")])
def test_the_loop_can_be_chosen(wanted: str, module: str) -> None:
    with start(WAITS.format(stopping=""), MILENA_LOOP=wanted) as process:
        assert first_line(process) == f"ready {module}\n"
        process.terminate()
        process.communicate(timeout=20)


def test_a_failed_task_ends_the_process_and_is_logged() -> None:
    main = """
async def fail():
    raise AssertionError("broken invariant")
async def main(runtime, stop):
    settle_memory()
    runtime.new_tasks("scope").spawn(fail(), name="work")
    await stop.requested.wait()
"""
    with start(main) as process:
        _, errors = process.communicate(timeout=20)
        first, last = errors.splitlines()
        event = json.loads(first)
        assert process.returncode == 1
        assert last == "milena: task scope/work failed: broken invariant"
        assert (event["level"], event["event"]) == ("critical", "task scope/work failed")
        assert "AssertionError: broken invariant" in event["exception"]


FULL_DISK = """
async def fail():
    raise OSError(28, "No space left on device", "/data/x.log")
async def main(runtime, stop):
    runtime.new_tasks("scope").spawn(fail(), name="work")
    await stop.requested.wait()
"""


def test_an_error_of_the_system_ends_the_process_with_a_sentence_and_no_traceback() -> None:
    with start(FULL_DISK) as process:
        _, errors = process.communicate(timeout=20)
        first, last = errors.splitlines()
        assert "exception" not in json.loads(first)
        assert last == "milena: task scope/work failed: /data/x.log: No space left on device"


def test_a_process_ends_also_if_its_last_line_cannot_be_written() -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", START.format(main=FULL_DISK)], stderr=full, cwd=ROOT, timeout=20, check=False
        )
    assert ended.returncode == 1


def test_an_unexpected_error_of_the_main_coroutine_ends_the_process_with_a_sentence() -> None:
    main = """
async def main(runtime, stop):
    raise AssertionError("broken invariant")
"""
    with start(main) as process:
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 1
        assert errors.splitlines()[-1] == "milena: the node failed: broken invariant"


def test_an_error_in_a_call_back_is_logged_and_ends_nothing() -> None:
    main = """
async def main(runtime, stop):
    asyncio.get_running_loop().call_soon(lambda: {}["missing"])
    await runtime.clock.sleep(0.01)
    asyncio.get_running_loop().call_soon(lambda: (_ for _ in ()).throw(AssertionError("broken")))
    await runtime.clock.sleep(0.01)
    return 7 + runtime.contained.count
"""
    with start(main) as process:
        _, errors = process.communicate(timeout=20)
        events = [json.loads(line) for line in errors.splitlines()]
        assert process.returncode == 9
        assert [(event["level"], event["event"]) for event in events] == [("error", "call-back failed")]
        assert "KeyError" in events[0]["exception"]


def test_the_process_imports_nothing_heavy() -> None:
    code = (
        "import sys, milena.runtime.process, milena.runtime.logging; milena.runtime.logging.get_logger('x')\n"
        "print([name for name in ('rich', 'hypothesis', 'http', 'email', 'kio', 'shutil') if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"
