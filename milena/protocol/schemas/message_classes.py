"""Finds the class of a message: kio's, or for messages that kio lacks one of ``protocol.schemas.newer``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, Literal

from milena.protocol.api_keys import ApiKey

Kind = Literal["request", "response"]
KINDS: Final[tuple[Kind, ...]] = ("request", "response")
_PRIVATE: Final[dict[tuple[int, int], str]] = {}
"""Modules by API key and version."""


def add_private_version(key: int, version: int, module: str) -> None:
    """Use a module's messages for a version that Kafka does not have, as test peers do between each other."""
    _PRIVATE[key, version] = module


def message_class(key: int, version: int, kind: Kind) -> Any:  # noqa: ANN401 - a message of any key and version
    """Return the dataclass of a request or response. Raises LookupError if this version has none."""
    name = ApiKey(key).name
    module = _imported(f"kio.schema.{name.lower()}.v{version}.{kind}")
    if module is None:
        module = _imported(f"milena.protocol.schemas.newer.{name.lower()}_v{version}")
    if module is None and (private := _PRIVATE.get((key, version))) is not None:
        module = importlib.import_module(private)
    if module is None:
        raise LookupError(f"no schema of {name} version {version}")
    # The other classes of the module are parts of a message, and header classes that kio imports there.
    return getattr(module, f"{name.title().replace('_', '')}{kind.title()}")


def _imported(path: str) -> ModuleType | None:
    """Import a module; None if there is none of this name."""
    try:
        with _without_hypothesis():
            return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not path.startswith(error.name):
            raise
        return None


@contextmanager
def _without_hypothesis() -> Iterator[None]:
    """Hide the package hypothesis from kio, which would import it if it is installed. That takes 250 ms.
    ``lean_import`` hides more, such as ssl, which another thread may import while a node serves."""
    if "kio.static.primitive" in sys.modules:
        yield
        return
    name = "hypothesis"
    missing = object()
    hidden = sys.modules.get(name, missing)
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden is missing:
            del sys.modules[name]
        else:
            sys.modules[name] = hidden  # type: ignore[assignment]
