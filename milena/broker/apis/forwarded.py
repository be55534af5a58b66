"""APIs that a broker forwards to the controller without reading the request (``table.py`` lists them)."""

from __future__ import annotations

from milena.broker.controller_link.forwarding import forward as handle

__all__ = ["handle"]
