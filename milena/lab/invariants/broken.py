"""What is raised when an invariant does not hold."""


class InvariantBroken(AssertionError):
    """The message says where, and what was found."""


def demand(holds: bool, where: object, text: str) -> None:
    """Raises InvariantBroken."""
    if not holds:
        raise InvariantBroken(f"{where}: {text}")
