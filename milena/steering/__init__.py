"""Control of a cluster of `milena up --lab`: lab commands to its nodes over Unix sockets, and their processes.

A request is one line of JSON, ``{"command": "hold", "api": "PRODUCE"}``, and so is the response, ``{"ok": ...}`` or
``{"error": "..."}``. A command that waits occupies its connection: use another one for further commands.
"""
