"""DescribeUserScramCredentials (50), version 0. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict


class DescribeUserScramCredentialsRequest(Protocol):
    @property
    def users(self) -> tuple[UserName, ...] | None: ...


class DescribeUserScramCredentialsRequestFields(TypedDict, total=False):
    users: Sequence[UserNameFields] | None


class UserName(Protocol):
    @property
    def name(self) -> str: ...


class UserNameFields(TypedDict, total=False):
    name: str


class DescribeUserScramCredentialsResponse(Protocol):
    @property
    def throttle_time(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def results(self) -> tuple[DescribeUserScramCredentialsResult, ...]: ...


class DescribeUserScramCredentialsResponseFields(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[DescribeUserScramCredentialsResultFields]


class DescribeUserScramCredentialsResult(Protocol):
    @property
    def user(self) -> str: ...
    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def credential_infos(self) -> tuple[CredentialInfo, ...]: ...


class DescribeUserScramCredentialsResultFields(TypedDict, total=False):
    user: str
    error_code: int
    error_message: str | None
    credential_infos: Sequence[CredentialInfoFields]


class CredentialInfo(Protocol):
    @property
    def mechanism(self) -> int: ...
    @property
    def iterations(self) -> int: ...


class CredentialInfoFields(TypedDict, total=False):
    mechanism: int
    iterations: int
