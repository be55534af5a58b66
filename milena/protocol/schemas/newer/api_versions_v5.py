"""ApiVersions (18), version 5: the request names the cluster and node that the client means to reach (KIP-1242)."""

from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.api_versions.v4.response import ApiVersionsResponse as ApiVersionsResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 18
    client_software_name: str = field(metadata={"kafka_type": "string"})
    client_software_version: str = field(metadata={"kafka_type": "string"})
    cluster_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    node_id: int = field(metadata={"kafka_type": "int32"}, default=-1)
