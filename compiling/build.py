"""``make compiled``: a tree of its own with the compiled form, build/compiled, for ``MILENA_PURE=0``.

The tree has a copy of the package, since extensions beside the sources would shadow a file that is edited later. What
is unchanged is not compiled again. ``milena/form.py`` reads the note that says of which sources the tree is.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from compileall import compile_dir
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import version
from pathlib import Path
from typing import Final

from compiling.modules import LIST, ROOT, compiled_files
from milena.form import NOTE, TREE, note_of

_IGNORED: Final = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")


def main() -> int:
    tree = ROOT / TREE
    tree.mkdir(parents=True, exist_ok=True)
    (tree / NOTE).unlink(missing_ok=True)
    key, note = _key(), note_of(str(ROOT / "milena"))  # of now: a file that is edited meanwhile makes the tree stale
    _copy(ROOT / "milena", tree / "milena")
    made = tree / "made.json"
    if not made.exists() or json.loads(made.read_text()) != key:
        made.unlink(missing_ok=True)
        _compile(tree)
        made.write_text(json.dumps(key))
    compile_dir(tree / "milena", quiet=1)  # the first start is quick too
    (tree / NOTE).write_text(note)
    print(f"compiled {len(compiled_files())} modules into {TREE}; MILENA_PURE=0 uses them")
    return 0


def _copy(source: Path, target: Path) -> None:
    """Make ``target`` what ``source`` is, but for extensions. Files keep their times."""
    for old in sorted(target.rglob("*.py")):
        if not (source / old.relative_to(target)).exists():
            old.unlink()
    shutil.copytree(source, target, ignore=_IGNORED, dirs_exist_ok=True)


def _key() -> dict[str, str]:
    """What the extensions depend on."""
    digest = sha256(LIST.read_bytes())
    for path in compiled_files():
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    for name in ("build.py", "extensions.py", "modules.py"):
        digest.update((ROOT / "compiling" / name).read_bytes())
    return {"sources": digest.hexdigest(), "mypy": version("mypy"), "python": sys.version}


def _compile(tree: Path) -> None:
    from setuptools import setup

    from compiling.extensions import compile_in_parallel, extensions

    for suffix in EXTENSION_SUFFIXES:
        for old in (tree / "milena").rglob(f"*{suffix}"):
            old.unlink()
    os.chdir(tree)
    compile_in_parallel()
    setup(
        name="milena-compiled", packages=[], ext_modules=extensions(tree), script_args=["-q", "build_ext", "--inplace"]
    )


if __name__ == "__main__":
    sys.exit(main())
