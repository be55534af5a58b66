"""Tiered storage (KIP-405): copying, reading and expiring remote segments."""

if __name__ != "milena.tiered":  # by the link at the root of the repository, so that every module exists twice
    raise ImportError("import milena.tiered, not tiered")
