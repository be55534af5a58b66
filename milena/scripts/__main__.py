"""``python -m milena.scripts kafka-topics --list ...``: runs one of Kafka's scripts."""

from __future__ import annotations

import sys

from milena.runtime.lean_import import lean_import

with lean_import():
    from milena.scripts.running import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]))
