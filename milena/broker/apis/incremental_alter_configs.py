"""IncrementalAlterConfigs (key 44), versions 0-1: checked here, answered by the controller."""

from __future__ import annotations

from milena.broker.controller_link.config_changes import failed, handle

__all__ = ["failed", "handle"]
