"""Steering a cluster of `milena up --lab` from outside: verbs of its nodes over Unix sockets, and their processes.

A request is one line of JSON, ``{"verb": "hold", "api": "PRODUCE"}``, and so is its answer, ``{"ok": ...}`` or
``{"error": "..."}``. Verbs that wait keep their connection busy: others go by another one.
"""
