"""Adds the extensions to a wheel if ``MILENA_COMPILE=1``. Everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup

from compiling.backend import wants_extensions

if wants_extensions():
    from compiling.extensions import compile_in_parallel, extensions

    compile_in_parallel()
    setup(ext_modules=extensions(Path()))
else:
    setup()
