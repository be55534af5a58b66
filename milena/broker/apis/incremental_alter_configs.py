"""IncrementalAlterConfigs (key 44), versions 0-1: validated by this broker, then forwarded to the controller."""

from __future__ import annotations

from milena.broker.controller_link.config_changes import failed, handle

__all__ = ["failed", "handle"]
