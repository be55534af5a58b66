"""``make compiled``: a tree with the compiled flavour in build/compiled, for ``MILENA_PURE=0``.

The tree has a copy of the package, since extensions beside the sources would shadow a file that is edited later. What
is unchanged is not compiled again. ``milena/form.py`` reads the note that says of which sources the tree is.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import sysconfig
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
    if _is_of_now(tree):  # nothing is changed: a process may be running from it
        print(f"{TREE} is of the sources as they are; MILENA_PURE=0 uses it")
        return 0
    tree.mkdir(parents=True, exist_ok=True)
    with (tree / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"another build is under way in {TREE}") from None
        _make(tree)
    print(f"compiled {len(compiled_files())} modules into {TREE}; MILENA_PURE=0 uses them")
    return 0


def _is_of_now(tree: Path) -> bool:
    """Whether the tree was built completely from these sources by this compiler."""
    note, made = tree / NOTE, tree / "made.json"
    if not note.exists() or not made.exists() or _missing(tree):
        return False
    return note.read_text() == note_of(str(ROOT / "milena")) and json.loads(made.read_text()) == _key()


def _make(tree: Path) -> None:
    (tree / NOTE).unlink(missing_ok=True)
    key, note = _key(), note_of(str(ROOT / "milena"))  # before the build: a file edited during it makes the tree stale
    _copy(ROOT / "milena", tree / "milena")
    made = tree / "made.json"
    if not made.exists() or json.loads(made.read_text()) != key or _missing(tree):
        made.unlink(missing_ok=True)
        _expect_compiler()
        _compile(tree)
        made.write_text(json.dumps(key))
    compile_dir(tree / "milena", quiet=1)  # compile the bytecode for a quick first start
    (tree / NOTE).write_text(note)


def _copy(source: Path, target: Path) -> None:
    """Make ``target`` a copy of ``source``, except for extensions. Files keep their times."""
    for old in sorted(target.rglob("*.py")):
        if not (source / old.relative_to(target)).exists():
            old.unlink()
    shutil.copytree(source, target, ignore=_IGNORED, dirs_exist_ok=True)


def _key() -> dict[str, str]:
    """Return what the extensions depend on."""
    digest = sha256(LIST.read_bytes())
    for path in compiled_files():
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    for name in ("build.py", "extensions.py", "modules.py"):
        digest.update((ROOT / "compiling" / name).read_bytes())
    return {"sources": digest.hexdigest(), "mypy": version("mypy"), "python": sys.version}


def _missing(tree: Path) -> list[Path]:
    """Remove extensions of removed modules."""
    wanted = [tree / path.relative_to(ROOT).with_suffix(EXTENSION_SUFFIXES[0]) for path in compiled_files()]
    wanted.append(tree / "milena" / f"compiled__mypyc{EXTENSION_SUFFIXES[0]}")
    return [path for path in wanted if not path.exists()]


def _expect_compiler() -> None:
    """Fail before mypyc works for a minute."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(command) is None:
        raise SystemExit(f"the compiled form needs a C compiler, and there is no {command}: install one, or set CC")


def _compile(tree: Path) -> None:
    from setuptools import setup

    from compiling.extensions import ParallelBuild, extensions

    for suffix in EXTENSION_SUFFIXES:
        for old in (tree / "milena").rglob(f"*{suffix}"):
            old.unlink()
    os.chdir(tree)
    setup(
        name="milena-compiled",
        packages=[],
        ext_modules=extensions(tree),
        cmdclass={"build_ext": ParallelBuild},
        script_args=["-q", "build_ext", "--inplace"],
    )


if __name__ == "__main__":
    sys.exit(main())
