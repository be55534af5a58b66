"""What a node lists in ApiVersions."""

from __future__ import annotations

from milena.protocol.requests.headers import parse_response_header
from milena.protocol.schemas.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ClientSoftware,
    decode_api_versions_response,
    encode_api_versions_request,
)
from tests.wire.raw import API_VERSIONS, connected, receive_frame, request


def listed(address: str) -> ApiVersionsResponse:
    """Ask a node with ApiVersions v4."""
    body = encode_api_versions_request(4, ApiVersionsRequest(ClientSoftware("test", "1")))
    with connected(address) as plain:
        plain.sendall(request(API_VERSIONS, 4, 1, body, flexible=True))
        _, answer = parse_response_header(API_VERSIONS, 4, memoryview(receive_frame(plain)))
        return decode_api_versions_response(4, answer)
