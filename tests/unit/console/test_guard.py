"""What the server refuses before the application sees the request."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from fastapi import FastAPI, Request

from milena.console.access import Access
from milena.console.guard import LONGEST_BODY, Guard
from milena.up import http_files
from milena.up.layout import ClusterDir
from tests.unit.console.asgi import HOST, call

TOKEN: Final = "a-token-of-a-program"
BEARER: Final = {"authorization": f"Bearer {TOKEN}"}
COOKIE: Final = "milena-9280"


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterDir:
    return ClusterDir(str(tmp_path))


@pytest.fixture
def access(cluster: ClusterDir) -> Access:
    return Access(TOKEN, cluster.http_code, ["lab.example"])


@pytest.fixture
def guard(access: Access) -> Guard:
    app = FastAPI()

    @app.get("/health")
    @app.get("/api/state")
    async def read() -> str:
        return "read"

    @app.post("/api/change")
    async def change(request: Request) -> int:
        return len(await request.body())

    return Guard(app, access, COOKIE)


def signed_in(cluster: ClusterDir, access: Access) -> dict[str, str]:
    """The headers of a browser that has opened a link."""
    code = http_files.link(cluster, "").partition("code=")[2]
    return {"cookie": f"other=1; {COOKIE}={access.redeem(code)}"}


async def test_a_program_with_the_token_reads_and_changes(guard: Guard) -> None:
    assert (await call(guard, "/api/state", headers=BEARER)).status == 200
    assert (await call(guard, "/api/change", "POST", BEARER, [b"ab", b"c"])).json == 3


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"cookie": f"{COOKIE}="}]
)
@pytest.mark.parametrize(("path", "method"), [("/api/state", "GET"), ("/api/change", "POST"), ("/openapi.json", "GET")])
async def test_without_the_token_data_and_changes_are_refused(
    guard: Guard, headers: dict[str, str], path: str, method: str
) -> None:
    answer = await call(guard, path, method, headers)
    assert answer.status == 401
    assert answer.json["error"].endswith("the link that `milena console` prints")
    assert "http-token" in answer.json["error"]
    assert TOKEN not in answer.body.decode()


async def test_health_needs_no_token(guard: Guard) -> None:
    assert (await call(guard, "/health")).status == 200


async def test_what_needs_no_token_cannot_be_changed(guard: Guard) -> None:
    assert (await call(guard, "/health", "POST")).status == 405


@pytest.mark.parametrize("host", ["", "evil.example", "evil.example:9280", "127.0.0.1.evil.example", "[::2]:9280"])
async def test_a_host_header_of_another_name_is_refused(guard: Guard, host: str) -> None:
    answer = await call(guard, "/health", headers={"host": host, **BEARER})
    assert answer.status == 421
    assert "127.0.0.1, ::1, lab.example, localhost" in answer.json["error"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "[::1]:9280", "lab.example:80"])
async def test_a_host_header_with_an_allowed_name_and_any_port_is_accepted(guard: Guard, host: str) -> None:
    assert (await call(guard, "/health", headers={"host": host})).status == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", f"ftp://{HOST}", f"http://{HOST}.evil.example"]
)
async def test_a_change_from_a_page_of_another_origin_is_refused_even_with_the_token(guard: Guard, origin: str) -> None:
    answer = await call(guard, "/api/change", "POST", {**BEARER, "origin": origin})
    assert answer.status == 403
    assert f"http://{HOST}" in answer.json["error"]


async def test_a_signed_in_browser_reads_and_changes_from_its_own_origin(
    guard: Guard, cluster: ClusterDir, access: Access
) -> None:
    browser = signed_in(cluster, access)
    assert (await call(guard, "/api/state", headers=browser)).status == 200
    assert (await call(guard, "/api/change", "POST", {**browser, "origin": f"http://{HOST}"})).status == 200


async def test_a_signed_in_browser_changes_nothing_without_an_origin(
    guard: Guard, cluster: ClusterDir, access: Access
) -> None:
    assert (await call(guard, "/api/change", "POST", signed_in(cluster, access))).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_page_of_another_origin_reads_nothing_with_the_cookie(
    guard: Guard, cluster: ClusterDir, access: Access, site: str
) -> None:
    headers = {**signed_in(cluster, access), "sec-fetch-site": site}
    assert (await call(guard, "/api/state", headers=headers)).status == 403


def test_a_code_is_redeemed_once(cluster: ClusterDir, access: Access) -> None:
    code = http_files.link(cluster, "").partition("code=")[2]
    assert access.redeem("wrong") is None
    assert access.redeem(code) is not None
    assert access.redeem(code) is None


def test_an_old_code_is_not_redeemed(cluster: ClusterDir, access: Access) -> None:
    code = http_files.link(cluster, "").partition("code=")[2]
    os.utime(cluster.http_code, (1, 1))
    assert access.redeem(code) is None


def test_the_code_and_the_token_are_readable_by_their_owner_only(cluster: ClusterDir) -> None:
    http_files.link(cluster, "")
    token = http_files.token(cluster.http_token)
    assert [os.stat(path).st_mode & 0o777 for path in (cluster.http_code, cluster.http_token)] == [0o600, 0o600]
    assert http_files.token(cluster.http_token) == token


@pytest.mark.parametrize(
    ("ended", "left"), [("http://127.0.0.1:1", None), ("http://127.0.0.1:2", "http://127.0.0.1:1")]
)
def test_a_server_that_ends_leaves_the_files_of_another_one(cluster: ClusterDir, ended: str, left: str | None) -> None:
    Path(cluster.http_address).write_text("http://127.0.0.1:1\n")
    http_files.link(cluster, "")
    http_files.forget(cluster, ended)
    assert http_files.address(cluster) == left
    assert Path(cluster.http_code).exists() is (left is not None)


async def test_a_body_that_says_it_is_too_long_is_refused(guard: Guard) -> None:
    answer = await call(guard, "/api/change", "POST", {**BEARER, "content-length": str(LONGEST_BODY + 1)})
    assert answer.status == 413
    assert str(LONGEST_BODY) in answer.json["error"]


async def test_a_body_that_becomes_too_long_is_refused(guard: Guard) -> None:
    part = bytes(LONGEST_BODY // 2 + 1)
    assert (await call(guard, "/api/change", "POST", BEARER, [part, part])).status == 413


async def test_answers_tell_browsers_to_run_no_foreign_scripts_and_to_store_no_data(guard: Guard) -> None:
    answer = await call(guard, "/api/state", headers=BEARER)
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
