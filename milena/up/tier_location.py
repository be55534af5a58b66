"""Checks of the remote tier's folder or URL, before `milena up` starts nodes with it."""

from __future__ import annotations

import os

from milena import install_hint
from milena.command_line.errors import UserError
from milena.up.plan import tier_properties

TYPE_CHECKING = False
if TYPE_CHECKING:
    from milena.up.plan import NodePlan
    from milena.up.settings import Settings

FOLDER, COPYING = "kafka-tiered-storage", "milena-copying"
"""As in tiered.tier_names: the folder in which LocalTieredStorage keeps partitions, and the one for incomplete
copies."""

BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci", "oss", "r2")


def place_of(settings: Settings, broker: NodePlan) -> str | None:
    """Return the folder or URL of a broker's tier; None without a tier, and if it has variables of config providers,
    which the broker resolves."""
    given = tier_properties(settings, broker) | dict(settings.overrides)
    if any(
        "${" in given.get(key, "") for key in ("remote.log.storage.system.enable", "rsm.config.url", "rsm.config.dir")
    ):
        return None
    if given.get("remote.log.storage.system.enable", "false").strip().lower() != "true":
        return None
    return given.get("rsm.config.url") or given.get("rsm.config.dir")


def check(place: str, brokers: int) -> list[str]:
    """Return warnings. Raises UserError for a folder that is a file or cannot be created, and for a store that
    ``brokers`` processes of this installation cannot use."""
    if "://" in place:
        _check_store(place, brokers)
        return []
    made, missing = "", place
    while missing != os.path.dirname(missing) and not os.path.lexists(missing):
        made, missing = missing, os.path.dirname(missing)
    if made:
        problem = _refusal(made)
        if problem is not None:
            raise UserError(f"the remote tier's folder {place} cannot be created: {problem}")
        return []
    if not os.path.isdir(place):
        raise UserError(f"the remote tier {place} is not a folder")
    for name in (COPYING, FOLDER):
        inside = os.path.join(place, name)
        problem = _refusal(os.path.join(inside if os.path.isdir(inside) else place, f".milena-{os.getpid()}"))
        if problem is not None:
            return [f"the remote tier's folder {place} is read-only, nothing can be copied to it: {problem}"]
    return []


def _check_store(url: str, brokers: int) -> None:
    from importlib.util import find_spec

    if find_spec("fsspec") is None:
        raise UserError(f"the remote tier {url} needs the package fsspec: pip install {install_hint('fsspec')}")
    from fsspec import get_filesystem_class

    for part in url.split("::"):
        protocol, _, rest = part.partition("://")
        try:
            get_filesystem_class(protocol)
        except ImportError as error:
            raise UserError(f"the remote tier {url} cannot be used: {error}") from error
        except ValueError as error:
            raise UserError(f"the remote tier {url} has a scheme that fsspec does not know: {error}") from error
        if protocol == "memory" and brokers > 1:
            raise UserError(
                f"the remote tier {url} is in the memory of each broker, where other brokers cannot read it: "
                "use it with --brokers 1, or name a folder"
            )
        if protocol in BUCKETS and not rest.strip("/"):
            raise UserError(f"the remote tier {url} names no bucket: write it as {protocol}://BUCKET/PREFIX")


def moved(former: str, place: str, broker: NodePlan) -> list[str]:
    """Return warnings if the cluster's tier was in another place and has partitions that the new place lacks."""
    if former == place:
        return []
    warning = f"the remote tier was {former} before: what was copied there cannot be read in {place}"
    advice = f"start with --tier {former}, or copy it over"
    if "://" in former or "://" in place:
        return [f"{warning}; {advice}"]
    try:
        missing = {*os.listdir(os.path.join(former, FOLDER))} - {*_listed(os.path.join(place, FOLDER))}
    except OSError as error:
        if former == broker.remote or _listed(os.path.join(place, FOLDER)):  # never made; moved to the new place
            return []
        return [f"{warning}, and {former} cannot be looked at now: {error.strerror}"]
    if not missing:
        return []
    folders = ", ".join(sorted(missing)[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return [f"{warning}, as {folders}; {advice}"]


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _refusal(folder: str) -> str | None:
    """Why a folder cannot be made; None if it can. None is missing."""
    try:
        os.mkdir(folder)
        os.rmdir(folder)
    except OSError as error:
        return error.strerror
    return None
