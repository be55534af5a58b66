"""The files of the HTTP server in a cluster's directory: the token of programs, the code of a link, the address.

DIR/http-token    the token that programs send as `Authorization: Bearer`; kept across starts
DIR/.http-code    the one-time code of the newest link to the console; removed when it is used
DIR/http-address  the address of the running server, as `http://127.0.0.1:9280`

The first two have mode 0600.
"""

from __future__ import annotations

import contextlib
import os

from milena.command_line.errors import UserError
from milena.up import private_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from milena.up.layout import ClusterDir

CODE_LIFE = 600.0
"""Seconds for which the one-time code of a link can be used."""
BYTES = 32


def token(path: str) -> str:
    """Return the token in a file, which is made if it is missing. Raises UserError if others may read it."""
    try:
        with open(path, encoding="ascii") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise UserError(f"{path} is readable by other users: chmod 600 {path}, or remove it for a new token")
            found = file.read().strip()
    except FileNotFoundError:
        found = ""
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise UserError(f"{path} has no token of ASCII characters; remove it for a new one") from None
    if not found:
        found = draw()
        private_files.replace(path, f"{found}\n")
    return found


def link(cluster: ClusterDir, address: str) -> str:
    """Return a link with a new one-time code for the console. A former link that was not used stops working."""
    code = draw()
    private_files.replace(cluster.http_code, f"{code}\n")
    return f"{address}/login?code={code}"


def draw() -> str:
    """Return a random secret of letters, digits, dashes and underscores."""
    from binascii import b2a_base64

    return b2a_base64(os.urandom(BYTES), newline=False).decode().rstrip("=").replace("+", "-").replace("/", "_")


def address(cluster: ClusterDir) -> str | None:
    """Return the address of the cluster's running server, or None."""
    try:
        with open(cluster.http_address, encoding="ascii") as file:
            return file.read().strip() or None
    except FileNotFoundError:
        return None


def forget(cluster: ClusterDir, ended: str | None = None) -> None:
    """Remove the address and an unused code, after the server has ended. ``ended``: its address; the files of another
    server of the cluster stay."""
    if ended is not None and address(cluster) != ended:
        return
    for path in (cluster.http_address, cluster.http_code):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
