"""Hooks of MkDocs: the pages at the repository's root become pages of the site, and links between pages follow.

On GitHub, README.md links to docs/tier.md, and docs/tier.md links to ../CHANGELOG.md. On the site all pages are below
one folder, so the links are rewritten before MkDocs checks them.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
ROOT_PAGES: Final = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
}
"""File at the repository's root to page of the site."""

LINK: Final = re.compile(r"(\]\(|src=\")(?!\w+:)([^)#\s\"]+)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each entry ``folder/*`` of the navigation by the folder's pages, without its README.md."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    return config


def _expanded(entries: list[Any] | None, docs: Path) -> list[Any]:
    result: list[Any] = []
    for entry in entries or []:
        match entry:
            case {**sections}:
                result.append(
                    {
                        title: _expanded(inner, docs) if isinstance(inner, list) else inner
                        for title, inner in sections.items()
                    }
                )
            case str() if entry.endswith("/*"):
                pages = sorted(docs.glob(entry.removesuffix("*") + "*.md"))
                result += [page.relative_to(docs).as_posix() for page in pages if page.name != "README.md"]
            case _:
                result.append(entry)
    return result


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the root's pages."""
    for source, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page's text with links as the site needs them."""
    del config, files
    where = page.file.src_uri
    sources = {target: source for source, target in ROOT_PAGES.items()}
    on_github = sources.get(where, f"docs/{where}")

    def rewritten(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(on_github), match[2]))
        on_site = ROOT_PAGES.get(target, target.removeprefix("docs/"))
        return match[1] + posixpath.relpath(on_site, posixpath.dirname(where) or ".")

    return LINK.sub(rewritten, markdown)
