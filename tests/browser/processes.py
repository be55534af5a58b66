"""Commands in processes of their own: Playwright's event loop runs in the tests' process."""

from __future__ import annotations

import subprocess
import sys


def milena(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its output, with errors."""
    words = [sys.executable, "-m", "milena", *arguments]
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100, check=False)
