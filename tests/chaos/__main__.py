"""`milena chaos` with the places and clients that only the tests have: containers, Apache Kafka, Java clients."""

from __future__ import annotations

import sys

from milena.commands.chaos import main
from tests.chaos.places import SETTING

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SETTING))
