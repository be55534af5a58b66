"""Counting descriptors must not fail for want of one."""

from __future__ import annotations

import os
import resource

from runtime import descriptors


def test_a_process_without_any_descriptor_left_has_all_of_them_open() -> None:
    former = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_now - 1, 3), former[1]))
    try:
        assert descriptors.open_now() == descriptors.limit()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, former)
