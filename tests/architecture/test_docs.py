"""What docs and docstrings refer to is there: sections of docs/kafka-semantics.md, links, paths, make targets."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.source import ROOT, text, tracked

SEMANTICS = Path("docs/kafka-semantics.md")
CITED = re.compile(r"(?<!`)docs/kafka-semantics\.md: ([^.);]+)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(#[^)\s]+)?\)")
PATH = re.compile(r"`((?:milena|tests|docs|benchmarks|\.ci|\.github)/[\w./-]*|[A-Z]+\.md|Makefile|pyproject\.toml)`")
REFERENCE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
TARGET = re.compile(r"\bmake ([a-z][a-z-]*)\b(?=[`\s]*(?:[A-Z]+=|`|#|$))", re.MULTILINE)


def pages() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".md"]


def headings(path: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", FENCE.sub("", text(path)), re.MULTILINE)


def anchors(path: Path) -> set[str]:
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(path)}


def unknown_sections(path: Path, sections: list[str]) -> list[str]:
    """What a file cites as a section and is none. Sections are separated by commas; KIPs and plain words may follow."""
    joined = re.sub(r"\s*\n\s*(?:#+ )?", " ", text(path))
    longest_first = "|".join(re.escape(section) for section in sorted(sections, key=len, reverse=True))
    known = re.compile(rf"(?:{longest_first}|KIP-\d+)(?=\W|$)")
    parts = [part.strip() for citation in CITED.findall(joined) for part in citation.split(",")]
    return [part for part in parts if part[:1].isupper() and not known.match(part)]


def test_each_cited_section_of_the_semantics_is_there() -> None:
    sections = headings(SEMANTICS)
    others = [path for path in tracked() if path.suffix in (".py", ".md") and path != SEMANTICS]
    unknown = [f"{path}: {citation}" for path in others for citation in unknown_sections(path, sections)]
    assert not unknown, "\n".join(unknown)


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in pages():
        for target, anchor in LINK.findall(FENCE.sub("", text(page))):
            file = (ROOT / page).parent / target if target else ROOT / page
            if not file.exists():
                broken.append(f"{page}: {target}")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.resolve().relative_to(ROOT)):
                broken.append(f"{page}: {target}{anchor}")
    assert not broken, "\n".join(broken)


def test_paths_in_pages_are_there() -> None:
    missing = [
        f"{page}: {path}"
        for page in pages()
        if page.name != "CHANGELOG.md" and "decisions" not in page.parts
        for path in PATH.findall(text(page))
        if not (ROOT / path).exists() and not path.startswith("benchmarks/results")
    ]
    assert not missing, "\n".join(missing)


def test_modules_of_the_api_reference_are_there() -> None:
    names = {name: page for page in pages() for name in REFERENCE.findall(text(page))}
    places = {name: ROOT / name.replace(".", "/") for name in names}
    missing = [
        f"{names[name]}: {name}"
        for name, place in places.items()
        if not (place.is_dir() or place.with_suffix(".py").exists())
    ]
    assert names
    assert not missing, "\n".join(missing)


def test_make_targets_in_pages_are_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", text(Path("Makefile")), re.MULTILINE))
    unknown = [f"{page}: make {name}" for page in pages() for name in TARGET.findall(text(page)) if name not in targets]
    assert not unknown, "\n".join(unknown)


def test_each_decision_has_its_sections_and_is_in_the_index() -> None:
    folder = Path("docs/decisions")
    index = text(folder / "README.md")
    decisions = [path for path in pages() if path.parent == folder and path.name != "README.md"]
    wrong = [
        str(path)
        for path in decisions
        if headings(path)[1:4] != ["Context", "Decision", "Consequences"] or f"]({path.name})" not in index
    ]
    assert decisions
    assert not wrong, wrong
