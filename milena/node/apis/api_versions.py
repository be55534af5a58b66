"""ApiVersions (18), v0 to v5, on every listener.

The answer lists what this role serves (``protocol.schemas.registry``) and the cluster's features; ``node.api_versions``
caches its bytes. A version above 5, or above that of ``kafka.version``, is answered in v0 with UNSUPPORTED_VERSION and
the range of this API alone (KIP-511); its body, whose format is unknown, is not read. An invalid client software name
or version is INVALID_REQUEST. A broker answers REBOOTSTRAP_REQUIRED if the client means another cluster or node.
KIPs: 35, 511, 584, 1242.
"""

from __future__ import annotations

from typing import Protocol

from milena.node.api import RequestContext
from milena.protocol.schemas.api_versions import ApiVersionsAnswers, decode_api_versions_request, error_body

RAW = True


class Answering(Protocol):
    """The part of a node that this module uses."""

    @property
    def api_versions(self) -> ApiVersionsAnswers: ...


def handle(node: Answering, ctx: RequestContext, body: memoryview) -> None:
    version = ctx.version
    if node.api_versions.reads(version):
        request = decode_api_versions_request(version, body)
        refusal = node.api_versions.refusal(request)
        if refusal is not None:
            ctx.respond([error_body(version, refusal)])
            return
        if request.software is not None:
            ctx.caller.software_name, ctx.caller.software_version = request.software
    ctx.respond([node.api_versions.body(version)])
