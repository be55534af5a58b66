"""ApiVersions as far as a channel needs it; the test may play an old peer."""

from __future__ import annotations

from typing import Any

from milena.node.api import Answer, RequestContext
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages

RAW = True


def handle(node: Any, ctx: RequestContext, body: memoryview) -> Answer:
    keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in node.versions.items()]
    code = ErrorCode.NONE if ctx.version <= node.newest_api_versions else ErrorCode.UNSUPPORTED_VERSION
    version = ctx.version if code == ErrorCode.NONE else 0
    features = [
        {"name": name, "max_version_level": level, "min_version_level": level} for name, level in node.features.items()
    ]
    fields = {"finalized_features_epoch": node.features_epoch, "finalized_features": features} if version >= 3 else {}
    ctx.respond([messages.encode_response(ApiKey.API_VERSIONS, version, error_code=int(code), api_keys=keys, **fields)])
    return None
