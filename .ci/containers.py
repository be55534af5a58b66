"""Milena's image where no image can be pulled: from Debian's packages, and wheels brought in from outside of the build.

Usage: python .ci/containers.py base|image|tests|stop FOLDER
       python .ci/containers.py run FOLDER pytest|python ARGUMENTS

``base`` makes `milena-base` by debootstrap, ``image`` builds `milena-kafka` on it, in compiled form if this machine has
the same Python and a C compiler; ``tests`` builds also `milena-kafka-s3` and `milena-kafka-console`, with these extras,
`milena-moto`, a store for profile s3, and `milena-kcat`, a client for profile clients. Each does what is missing before
it. If no engine answers (DOCKER_HOST, or the default), one is started, with everything that it keeps in FOLDER, and
``stop`` ends it. The last line of standard output is the engine's address, for DOCKER_HOST. ``run`` does what ``tests``
does, and runs a command with that address. Ends with 77 and the reason if this machine cannot do it, and with 1 if a
build fails.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BASE, MOTO, KCAT = "milena-base", "milena-moto", "milena-kcat"
IMAGE, S3, CONSOLE = "milena-kafka", "milena-kafka-s3", "milena-kafka-console"
MOTO_VERSION = "5.2.3"
"""As in docker-compose.yml."""
SUITE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
CONTEXT = ("Dockerfile", ".dockerignore", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")
FOLDERS = ("compiling", "docker", "milena")
STORE = """\
FROM milena-base AS build
COPY wheels wheels
RUN python3 -m venv /opt/moto && /opt/moto/bin/pip install --no-cache-dir --no-index --find-links wheels moto[server,s3]
FROM milena-base
COPY --from=build /opt/moto /opt/moto
ENTRYPOINT ["/opt/moto/bin/moto_server", "-H", "0.0.0.0"]
"""
"""The Dockerfile of `milena-moto`; its command is as that of the image motoserver/moto."""
LEFT_OUT = ("./var/cache/apt/*", "./var/lib/apt/lists/*", "./dev/*")
LABEL = "milena.sources"
CANNOT = 77
"""The exit code if this machine cannot do it: a skip, as for Automake's tests."""
ENGINE_LIMIT = 60.0
"""Seconds that an engine may take to answer."""


class Cannot(Exception):
    """Why this machine cannot do it."""


class BuildFailed(Exception):
    """An image or a wheel of our own sources cannot be built."""


def main(arguments: list[str]) -> int:
    what, folder, *command = arguments if len(arguments) >= 2 else ("", "")
    if what not in ("base", "image", "tests", "run", "stop") or bool(command) != (what == "run"):
        print(__doc__, file=sys.stderr)
        return 2
    return prepare(what, Path(folder).resolve(), command)


def prepare(what: str, folder: Path, command: Sequence[str]) -> int:
    try:
        if what == "stop":
            stop_engine(folder)
            return 0
        folder.mkdir(parents=True, exist_ok=True)
        address = engine(folder)
        os.environ["DOCKER_HOST"] = address
        make_base(folder)
        if what != "base":
            make_image(folder, IMAGE)
        if what in ("tests", "run"):
            make_image(folder, S3, "s3")
            make_image(folder, CONSOLE, "console")
            make_store(folder)
            make_kcat(folder)
    except Cannot as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return CANNOT
    except BuildFailed as reason:
        print(f"failed: {reason}", file=sys.stderr)
        return 1
    if what == "run":
        program = ["-m", "pytest"] if command[0] == "pytest" else []
        return subprocess.run([sys.executable, *program, *command[1:]], cwd=ROOT, check=False).returncode
    print(address)
    return 0


# The engine


def engine(folder: Path) -> str:
    """The address of an engine that answers; starts one if none does. Raises Cannot."""
    need("docker", "docker.io")
    own = f"unix://{folder}/docker.sock"
    for address in (os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock", own):
        if answers(address):
            return address
    if os.geteuid():
        raise Cannot("no engine answers, and only root can start one")
    need("dockerd", "docker.io")
    need("iptables", "iptables")
    say(f"starting an engine in {folder}")
    places = ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/docker.pid"]
    with (folder / "dockerd.log").open("ab") as log:
        started = subprocess.Popen(["dockerd", "-H", own, *places], stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + ENGINE_LIMIT
    while not answers(own):
        if started.poll() is not None or time.monotonic() > deadline:
            last = (folder / "dockerd.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise Cannot(f"the engine does not start: {' '.join(last)[-300:]}")
        time.sleep(0.2)
    return own


def answers(address: str) -> bool:
    asked = ["docker", "-H", address, "version", "--format", "{{.Server.Version}}"]
    return subprocess.run(asked, capture_output=True, check=False, timeout=60).returncode == 0


def stop_engine(folder: Path) -> None:
    """End the engine that was started in this folder, by its process id."""
    try:
        process = int((folder / "docker.pid").read_text())
        os.kill(process, signal.SIGTERM)
    except (FileNotFoundError, ProcessLookupError):
        say(f"no engine runs in {folder}")
        return
    deadline = time.monotonic() + ENGINE_LIMIT
    while Path(f"/proc/{process}").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    say(f"the engine in {folder} has ended; its images and volumes stay in {folder}/data")


# The images


def make_base(folder: Path) -> None:
    """`milena-base`, unless it is there: Debian's Python and what it needs. Raises Cannot."""
    if has(BASE):
        return
    if os.geteuid():
        raise Cannot(f"{BASE} is not there, and only root can make it: debootstrap makes files of other users")
    need("debootstrap", "debootstrap")
    say(f"making {BASE} of Debian's packages ({SUITE}), which takes about a minute")
    root = folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root))
    import_image(root, BASE)


def make_kcat(folder: Path) -> None:
    """`milena-kcat`, unless it is there. Raises Cannot."""
    if has(KCAT):
        return
    root = folder / "root"
    if not (root / "etc/debian_version").exists():
        run("docker", "image", "rm", "--force", BASE)
        make_base(folder)
    make_base(folder)
    say(f"making {KCAT}")
    install = "apt-get update -q && apt-get install -y -q --no-install-recommends kcat"
    run("chroot", str(root), "sh", "-c", install)
    import_image(root, KCAT)
    shutil.rmtree(root)  # it is no base any more


def import_image(root: Path, name: str) -> None:
    packed = ["tar", "-C", str(root), "-c", *(f"--exclude={path}" for path in LEFT_OUT), "."]
    with subprocess.Popen(packed, stdout=subprocess.PIPE) as tar:
        done = subprocess.run(["docker", "import", "-", name], stdin=tar.stdout, capture_output=True, check=False)
    if tar.returncode or done.returncode:
        raise Cannot(f"{name} cannot be imported: {done.stderr.decode(errors='replace').strip()[-300:]}")


def make_image(folder: Path, name: str, extra: str = "") -> None:
    """`milena-kafka` of these sources, with an extra of the package, unless it is there. Raises Cannot."""
    sources = digest_of(CONTEXT, FOLDERS)
    if label_of(name) == sources:
        return
    version = python_of_base()
    compiled = compiled_wheel(folder / "compiled", version)
    wheels = fetch_wheels(folder / f"wheels-of-{name}", version, locked(f"-{extra}" if extra else ""))
    if compiled is None:
        build_tools = fetch_wheels(folder / "wheels-to-build", version, locked("-build"))
        shutil.copytree(build_tools, wheels, dirs_exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        context = Path(scratch)
        for file in CONTEXT:
            shutil.copy(ROOT / file, context)
        for tree in FOLDERS:
            shutil.copytree(ROOT / tree, context / tree, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        shutil.copytree(wheels, context / "wheels")
        if compiled is not None:
            shutil.copy(compiled, context / "wheels")
        say(f"building {name} ({'compiled' if compiled else 'pure'})")
        arguments = {"BASE_IMAGE": BASE, "EXTRAS": extra, "FORM": "compiled" if compiled else "pure"}
        given = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
        build("docker", "build", "--quiet", *given, "--label", f"{LABEL}={sources}", "--tag", name, str(context))


def locked(which: str) -> list[str]:
    """The options of pip for the packages that the image installs, with their hashes."""
    return ["--require-hashes", "-r", f"docker/requirements{which}.txt"]


def make_store(folder: Path) -> None:
    """`milena-moto`, unless it is there. Raises Cannot."""
    if has(MOTO):
        return
    wheels = fetch_wheels(folder / f"wheels-of-{MOTO}", python_of_base(), [f"moto[server,s3]=={MOTO_VERSION}"])
    say(f"building {MOTO}")
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(wheels, Path(scratch, "wheels"))
        Path(scratch, "Dockerfile").write_text(STORE, encoding="utf-8")
        run("docker", "build", "--quiet", "--tag", MOTO, scratch)


def python_of_base() -> str:
    printed = "import sys; print('%d.%d' % sys.version_info[:2])"
    return run("docker", "run", "--rm", BASE, "python3", "-c", printed).strip()


def fetch_wheels(wheels: Path, python: str, needed: Sequence[str]) -> Path:
    """What an image installs, for this version of Python. Raises Cannot."""
    say(f"fetching wheels for Python {python}")
    shutil.rmtree(wheels, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", str(wheels)]
    run(*pip, "--only-binary=:all:", f"--python-version={python}", *needed)
    return wheels


def compiled_wheel(folder: Path, python: str) -> Path | None:
    """Milena's wheel with extensions, of these sources; None where this machine cannot make one for that Python."""
    if (
        python != f"{sys.version_info.major}.{sys.version_info.minor}"
        or shutil.which(os.environ.get("CC", "cc")) is None
    ):
        say(f"the compiled form needs Python {python} and a C compiler here: the image gets the pure one")
        return None
    made = folder / digest_of([name for name in CONTEXT if name != "Dockerfile"], ("compiling", "milena"))
    if not made.exists():
        say("building the compiled form, which takes about two minutes")
        shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            build(sys.executable, "-m", "compiling.wheels", scratch, "--form", "compiled")
            shutil.copytree(scratch, made, ignore=shutil.ignore_patterns("*.tar.gz"))
    (wheel,) = made.glob("*.whl")
    return wheel


def digest_of(names: Sequence[str], trees: Sequence[str]) -> str:
    """Return a digest of files and folders of the project, without what Python and compilers write there."""
    files = [ROOT / name for name in names]
    for tree in trees:
        paths = sorted(path for path in (ROOT / tree).rglob("*") if path.is_file())
        files += [path for path in paths if path.suffix not in (".pyc", ".so")]
    digest = sha256()
    for path in files:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def label_of(image: str) -> str | None:
    """Return the digest of the sources that an image was made of; None without such an image."""
    shown = ["docker", "image", "inspect", "--format", f'{{{{index .Config.Labels "{LABEL}"}}}}', image]
    done = subprocess.run(shown, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout.strip()


def has(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode == 0


# Running programs


def need(command: str, package: str) -> None:
    if shutil.which(command) is None and not Path("/usr/sbin", command).exists():
        raise Cannot(f"{command} is not there (Debian and Ubuntu: apt-get install {package})")
    if platform.system() != "Linux":
        raise Cannot("this needs Linux; elsewhere `docker build .` makes the image")


def run(*command: str) -> str:
    """What it printed. Raises Cannot with its last words."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip())[-500:]
        raise Cannot(f"`{' '.join(command[:3])} ...` failed: {words}")
    return done.stdout


def build(*command: str) -> None:
    """Run a build of our own sources. Raises BuildFailed with its last words."""
    try:
        run(*command)
    except Cannot as reason:
        raise BuildFailed(str(reason)) from None


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
