"""The exception for violated invariants."""


class InvariantBroken(AssertionError):
    """An invariant is violated. The message has the place and the violation."""


def demand(holds: bool, where: object, text: str) -> None:
    """Raise InvariantBroken if ``holds`` is false. Rules that are checked after most events raise it themselves, since
    formatting ``text`` takes longer than the check."""
    if not holds:
        raise InvariantBroken(f"{where}: {text}")
