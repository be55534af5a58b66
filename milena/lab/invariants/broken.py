"""The exception for violated invariants."""


class InvariantBroken(AssertionError):
    """The message says where, and what was found."""


def demand(holds: bool, where: object, text: str) -> None:
    """Raises InvariantBroken if ``holds`` is false."""
    if not holds:
        raise InvariantBroken(f"{where}: {text}")
