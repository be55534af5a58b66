"""An S3-compatible store for a tier: moto's server, as a separate process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.wire.waiting import wait_until

URL = "s3://bucket/tier"
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
FILL = """
import fsspec, json, sys
store = fsspec.filesystem("s3", **json.loads(sys.argv[1]))
store.mkdir("bucket")
for folder in sys.argv[2:]:
    store.put(folder, "bucket/tier", recursive=True)
"""


@contextmanager
def s3(folder: Path, *filled: Path) -> Iterator[str]:
    """Start a server with the bucket of URL, which has the files of the folder ``filled``; yields the options (JSON) to
    reach it. ``folder`` gets the server's log. Skips the test if moto is not installed."""
    if not (find_spec("moto") and find_spec("s3fs")):
        pytest.skip("needs moto[server] and s3fs")
    log = folder / "moto.log"
    with log.open("wb") as out:
        server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", "0"], stdout=out, stderr=out)
    try:
        wait_until(lambda: ADDRESS.search(log.read_text()) is not None, "moto's server listens", 60)
        found = ADDRESS.search(log.read_text())
        assert found is not None
        options = json.dumps({"key": "x", "secret": "x", "client_kwargs": {"endpoint_url": found[0]}})
        subprocess.run([sys.executable, "-c", FILL, options, *map(str, filled)], check=True)
        yield options
    finally:
        server.kill()
        server.wait()
