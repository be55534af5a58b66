"""Requests to the HTTP server of a local cluster, with the standard library."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any, NamedTuple


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class HttpClient:
    """A program with the token. ``call`` makes one connection per request."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """``folder``: the directory of the cluster, or that of `milena http`."""
        self.folder = os.fspath(folder)
        self.address = _read(self.folder, "http-address")
        self.token = _read(self.folder, "http-token")
        self.host = self.address.removeprefix("http://")

    def call(
        self, path: str, method: str = "GET", body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send one request with the token. A header of ``headers`` with the value "" is left out."""
        sent = {"authorization": f"Bearer {self.token}", "content-type": "application/json", **(headers or {})}
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {name: value for name, value in sent.items() if value})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def ok(self, path: str, method: str = "GET", body: object = None) -> Any:
        """Return the JSON of a successful answer."""
        answer = self.call(path, method, body)
        assert answer.status == 200, answer.body.decode()
        return answer.json


def _read(folder: str, name: str) -> str:
    with open(os.path.join(folder, name)) as file:
        return file.read().strip()


def until_ready(server: subprocess.Popen[str]) -> None:
    """Wait until `milena http` has written its line."""
    assert server.stderr is not None
    line = server.stderr.readline()
    assert line.startswith("HTTP API at "), line + server.stderr.read()
