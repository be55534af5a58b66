"""Adds the extensions to a wheel if ``MILENA_COMPILE=1``. Everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup

from compiling.backend import wants_extensions

if wants_extensions():
    from compiling.extensions import ParallelBuild, extensions

    setup(ext_modules=extensions(Path()), cmdclass={"build_ext": ParallelBuild})
else:
    setup()
