"""The kinds of faults, and what one that was injected has to be judged by: lines of a history."""

from __future__ import annotations

from milena.lab.histories.faults import Fault as Fault
from milena.lab.histories.faults import Kind as Kind
