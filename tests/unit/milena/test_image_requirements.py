"""What the image installs (docker/requirements*.txt) is what pyproject.toml asks for, in exact versions with hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from compiling.backend import compile_requirements
from milena import VERSION

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEPENDENCIES = PROJECT["project"]["dependencies"]
NEEDED = {
    "": DEPENDENCIES,
    "-s3": [*DEPENDENCIES, *PROJECT["project"]["optional-dependencies"]["s3"]],
    "-build": [*PROJECT["build-system"]["requires"], *compile_requirements()],
}


def pinned(which: str) -> dict[str, str]:
    """Return the versions by name. Each has hashes, and no other file or index is named."""
    text = (ROOT / "docker" / f"requirements{which}.txt").read_text()
    entries = re.findall(r"^([\w.-]+)==(\S+)[^\n]*\\\n((?: {4}--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.M)
    assert len(entries) == len(re.findall("^[^#\\s]", text, re.M))
    return {canonicalize_name(name): version for name, version, _ in entries}


@pytest.mark.parametrize("which", NEEDED)
def test_every_requirement_is_pinned_with_hashes(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = pinned(which)
    for requirement in map(Requirement, NEEDED[which]):
        assert requirement.specifier.contains(found[canonicalize_name(requirement.name)]), requirement
    assert {name: found[name] for name in pinned("") if name in found} == pinned("")


def test_the_dockerfile_and_the_compose_file_name_the_same_base_by_its_digest() -> None:
    dockerfile, compose = (ROOT / "Dockerfile").read_text(), (ROOT / "docker-compose.yml").read_text()
    (base,) = re.findall(r"^ARG BASE_IMAGE=(.*)$", dockerfile, re.M)
    assert re.fullmatch(r"python:3\.\d+-slim@sha256:[0-9a-f]{64}", base)
    assert f"${{BASE_IMAGE:-{base}}}" in compose
    assert f"ARG VERSION={VERSION}\n" in dockerfile
