"""Runs of scenarios as the pages get them, made without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Record = tuple[int, int, int]
"""Offset, message, leader epoch."""


def run_of(steps: Sequence[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {
        "scenario": "made",
        "variant": None,
        "title": "A run that a test made",
        "document": "KIP-405",
        "note": None,
        "world": "simulation",
        "outcome": "passed",
        "conclusion": None,
        "epochs": {"0": 0, "2": 3},
        "steps": [{**step, "number": number} for number, step in enumerate(steps, 1)],
    } | fields


def step_of(title: str, **fields: Any) -> dict[str, Any]:
    return {
        "title": title,
        "quote": None,
        "seconds": 1.0,
        "actions": [],
        "events": [],
        "tables": [],
        "replicas": {},
        "segments": [],
        "checks": [],
        "wrong": None,
    } | fields


def replica(log: Sequence[Record], **fields: Any) -> dict[str, Any]:
    return {
        "stopped": False,
        "role": "follower",
        "log": log,
        "epochs": [],
        "log_start": 0,
        "local_log_start": log[0][0] if log else 0,
        "high_watermark": 0,
        "log_end": log[-1][0] + 1 if log else 0,
        "in_isr": True,
        "state": None,
    } | fields


def segment(name: str, log: Sequence[Record]) -> dict[str, Any]:
    return {
        "partition": "t-0",
        "name": name,
        "first": log[0][0],
        "last": log[-1][0],
        "epochs": [],
        "log": log,
        "state": "COPY_SEGMENT_FINISHED",
    }


def request(at: float, source: str, target: str, api: str, text: str, result: str, *, error: bool) -> dict[str, Any]:
    return {
        "at": at,
        "kind": "request",
        "source": source,
        "target": target,
        "api": api,
        "text": text,
        "result": result,
        "error": error,
        "line": f"{source} -> {target} {api} {text}: {result}",
    }


def row(expected: str | None, actual: str | None, mark: str, reason: str = "") -> dict[str, Any]:
    return {"expected": expected, "actual": actual, "mark": mark, "reason": reason}


def table(name: str, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "kind": "replica", "rows": list(rows)}
