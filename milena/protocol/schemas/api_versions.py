"""ApiVersions (18), v0 to v5: a hand-written codec. Every connection begins with this request, so it must not wait for
the import of kio.

v1 throttle time, v3 flexible, the client's software (KIP-511) and features (KIP-584), v4 supported features with a
minimum level of 0; v3 omits these, since old clients refuse such a minimum, v5 the node that the client means to reach
(KIP-1242). A request of an unknown version is answered
in v0 with UNSUPPORTED_VERSION and the version range of this API, so that the client can choose a version (KIP-511).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.schemas.primitives import Data, Reader, Writer
from milena.protocol.schemas.registry import FORWARDABLE, Role, VersionRange, advertised
from milena.releases import NEWEST

NO_OTHERS: Final[Mapping[ApiKey, VersionRange]] = {}
NO_EPOCH: Final = -1
"""The epoch of finalized features while they are unknown."""
NO_NODE: Final = -1
"""The node id of a request that does not name a node."""

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsAnswers:
    """The ApiVersions responses of one role of a node. Their bytes are cached until the finalized features change."""

    def __init__(
        self,
        role: Role,
        supported: Mapping[str, VersionRange | tuple[int, int]],
        overrides: Mapping[ApiKey, VersionRange] = NO_OTHERS,
        *,
        release: str = NEWEST,
        identity: Callable[[], tuple[str, int]] | None = None,
        controller: Callable[[], Mapping[int, VersionRange]] | None = None,
    ) -> None:
        """``supported``: the lowest and highest level of each feature. ``overrides``: advertised version ranges of
        single APIs that differ from the registry. ``release``: the release whose versions are listed. ``identity``
        returns the cluster id and node id that a request of v5 must name if it names any; None if they are not
        compared, as on Kafka's controllers. ``controller`` returns what the controller serves, another mapping after
        each change; empty while that is not known; None on a controller."""
        self._identity = identity
        self._controller = controller
        self._controller_keys: Mapping[int, VersionRange] = {}
        self._keys = {**advertised(role, release), **overrides}
        self._supported = dict(sorted(supported.items()))
        self._finalized: dict[str, int] = {}
        self._epoch = NO_EPOCH
        self._bodies: dict[int, bytes] = {}

    def set_finalized(self, levels: Mapping[str, int], epoch: int) -> None:
        """Set the cluster's feature levels at the metadata offset ``epoch``. Level 0 means not finalized."""
        self._finalized = {name: level for name, level in sorted(levels.items()) if level > 0}
        self._epoch = epoch
        self._bodies.clear()

    def refusal(self, request: ApiVersionsRequest) -> ErrorCode | None:
        """Return INVALID_REQUEST for invalid names, or one of cluster id and node id without the other, and
        REBOOTSTRAP_REQUIRED if the client means another node (KIP-1242); otherwise None."""
        if (request.cluster_id is None) != (request.node_id == NO_NODE):
            return ErrorCode.INVALID_REQUEST
        if request.software is not None and not request.software.valid:
            return ErrorCode.INVALID_REQUEST
        if request.cluster_id is None or self._identity is None:
            return None
        is_this = (request.cluster_id, request.node_id) == self._identity()
        return None if is_this else ErrorCode.REBOOTSTRAP_REQUIRED

    def reads(self, version: int) -> bool:
        """Whether requests of this version are read; others are answered in v0."""
        return self._keys[ApiKey.API_VERSIONS].includes(version)

    def body(self, version: int) -> bytes:
        """Return the response's body; for an unknown version the error response in v0."""
        if not self.reads(version):
            return fallback_body(self._keys[ApiKey.API_VERSIONS])
        if self._controller is not None and (found := self._controller()) is not self._controller_keys:
            self._controller_keys = found
            self._bodies.clear()
        body = self._bodies.get(version)
        if body is None:
            body = self._bodies[version] = self._encode(version)
        return body

    def _encode(self, version: int) -> bytes:
        out = Writer()
        out.int16(ErrorCode.NONE)
        _write_keys(out, version, _forwarded(self._keys, self._controller_keys))
        if version >= 1:
            out.int32(0)
        if version >= 3:
            self._write_features(out, version)
        return bytes(out)

    def _write_features(self, out: Writer, version: int) -> None:
        supported = {name: (low, high) for name, (low, high) in self._supported.items() if low or version >= 4}
        tags: list[tuple[int, Writer]] = []
        if supported:
            tags.append((0, _features(supported)))
        if self._epoch != NO_EPOCH:
            epoch = Writer()
            epoch.int64(self._epoch)
            tags.append((1, epoch))
        if self._finalized:
            # As in Kafka, minimum and maximum are both the finalized level.
            tags.append((2, _features({name: (level, level) for name, level in self._finalized.items()})))
        out.uvarint(len(tags))
        for tag, content in tags:
            out.tag(tag, content.data)


def _forwarded(
    keys: Mapping[ApiKey, VersionRange], controller: Mapping[int, VersionRange]
) -> dict[ApiKey, VersionRange]:
    """Return ``keys`` with those that are forwarded limited to what the controller serves, which may be of another
    release (``ApiVersionsResponse.intersectForwardableApis``)."""
    if not controller:
        return dict(keys)
    found = {}
    for key, ours in keys.items():
        theirs = controller.get(key) if key in FORWARDABLE else ours
        if theirs is not None and (low := max(ours.min, theirs.min)) <= (high := min(ours.max, theirs.max)):
            found[key] = VersionRange(low, high)
    return found


def fallback_body(served: VersionRange) -> bytes:
    """Return the v0 response to a request of an unknown version."""
    return error_body(0, ErrorCode.UNSUPPORTED_VERSION, {ApiKey.API_VERSIONS: served})


def error_body(version: int, error_code: ErrorCode, keys: Mapping[ApiKey, VersionRange] | None = None) -> bytes:
    """Return a response with an error, such as INVALID_REQUEST for an invalid client software name."""
    out = Writer()
    out.int16(error_code)
    _write_keys(out, version, keys or {})
    if version >= 1:
        out.int32(0)
    if version >= 3:
        out.append(0)
    return bytes(out)


def _write_keys(out: Writer, version: int, keys: Mapping[ApiKey, VersionRange]) -> None:
    (out.compact_array if version >= 3 else out.array)(len(keys))
    for key, (low, high) in keys.items():
        out.int16(key)
        out.int16(low)
        out.int16(high)
        if version >= 3:
            out.append(0)


def _features(levels: Mapping[str, tuple[int, int]]) -> Writer:
    out = Writer()
    out.compact_array(len(levels))
    for name, (first, second) in levels.items():
        out.compact_string(name)
        out.int16(first)
        out.int16(second)
        out.append(0)
    return out


class ClientSoftware(NamedTuple):
    """The client software name and version in a request from v3 on."""

    name: str
    version: str

    @property
    def valid(self) -> bool:
        """Whether both consist of letters, digits, and, except at the ends, dots and hyphens. Otherwise the response is
        INVALID_REQUEST."""
        return all(_SOFTWARE.fullmatch(text) is not None for text in self)


class ApiVersionsRequest(NamedTuple):
    """A request. ``software``: None below v3. ``cluster_id`` and ``node_id``: the node that the client means to reach,
    from v5 on; None and ``NO_NODE`` if it does not say."""

    software: ClientSoftware | None = None
    cluster_id: str | None = None
    node_id: int = NO_NODE


def decode_api_versions_request(version: int, body: Data) -> ApiVersionsRequest:
    """Decode a request. Bytes after it are ignored. Raises DecodeError."""
    if version < 3:
        return ApiVersionsRequest()
    reader = Reader(body)
    software = ClientSoftware(reader.compact_string(), reader.compact_string())
    cluster, node = (reader.compact_nullable_string(), reader.int32()) if version >= 5 else (None, NO_NODE)
    reader.skip_tags()
    return ApiVersionsRequest(software, cluster, node)


def encode_api_versions_request(version: int, request: ApiVersionsRequest) -> bytes:
    """Encode a request. From v3 on it must have ``software``."""
    out = Writer()
    if version >= 3:
        assert request.software is not None
        out.compact_string(request.software.name)
        out.compact_string(request.software.version)
        if version >= 5:
            out.compact_nullable_string(request.cluster_id)
            out.int32(request.node_id)
        out.append(0)
    return bytes(out)


class ApiVersionsResponse(NamedTuple):
    """A peer's version ranges by API key, and its features. ``finalized`` has the levels at ``finalized_epoch``."""

    error_code: int
    keys: Mapping[int, VersionRange]
    supported: Mapping[str, VersionRange]
    finalized: Mapping[str, int]
    finalized_epoch: int


def decode_api_versions_response(version: int, body: Data) -> ApiVersionsResponse:
    """Decode the response to a request of ``version``; it is in v0 if the peer does not know that version. Raises
    DecodeError."""
    reader = Reader(body)
    error_code = reader.int16()
    if error_code == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    keys: dict[int, VersionRange] = {}
    for _ in range(reader.compact_array() if version >= 3 else reader.array()):
        key = reader.int16()
        keys[key] = VersionRange(reader.int16(), reader.int16())
        if version >= 3:
            reader.skip_tags()
    if version >= 1:
        reader.int32()
    supported: dict[str, VersionRange] = {}
    finalized: dict[str, int] = {}
    epoch = NO_EPOCH
    if version >= 3:
        for tag, content in reader.tags():
            if tag == 0:
                supported = _read_features(content)
            elif tag == 1:
                epoch = content.int64()
            elif tag == 2:
                finalized = {name: levels.min for name, levels in _read_features(content).items()}
    reader.expect_end()
    return ApiVersionsResponse(error_code, keys, supported, finalized, epoch)


def _read_features(reader: Reader) -> dict[str, VersionRange]:
    features = {}
    for _ in range(reader.compact_array()):
        name = reader.compact_string()
        features[name] = VersionRange(reader.int16(), reader.int16())
        reader.skip_tags()
    return features
