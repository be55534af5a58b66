"""Pages with data and modules inside."""

from __future__ import annotations

import pytest

from milena.report import embedded as module
from milena.report.embedded import embedded, joined


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The files of the console, by name, in place of the real ones."""
    found = {"theme.css": "", "page.css": ""}
    monkeypatch.setattr(module, "static", found.__getitem__)
    return found


def test_a_module_comes_after_those_that_it_imports_and_each_one_once(files: dict[str, str]) -> None:
    files["a.js"] = 'import { b } from "./b.js";\nimport { c } from "./c.js";\nb(c);\n'
    files["b.js"] = 'import { c } from "./c.js";\nexport function b(x) { return c; }\n'
    files["c.js"] = "export const c = 1;\n"
    text = joined("a.js")
    places = [text.index(f'modules["{name}.js"] = ') for name in "cba"]
    assert places == sorted(places)
    assert text.count("const c = 1") == 1
    assert 'const { b } = modules["b.js"];' in text
    assert "return { b };" in text
    assert "export" not in text and "import" not in text


@pytest.mark.parametrize("line", ['import x from "./b.js";', 'import "./b.js";', "export default 1;", "export { a };"])
def test_a_form_that_cannot_be_joined_is_an_error(files: dict[str, str], line: str) -> None:
    files["a.js"] = f"const a = 1;\n{line}\n"
    files["b.js"] = ""
    with pytest.raises(ValueError, match=r"a\.js: not in a form that can be joined"):
        joined("a.js")


def test_modules_that_import_each_other_are_an_error(files: dict[str, str]) -> None:
    files["a.js"] = 'import { b } from "./b.js";\n'
    files["b.js"] = 'import { a } from "./a.js";\n'
    with pytest.raises(ValueError, match=r"a\.js imports itself"):
        joined("a.js")


def test_data_cannot_end_its_element(files: dict[str, str]) -> None:
    files["a.js"] = ""
    text = embedded("<title>", "a.js", {"run": {"text": "</script><script>alert(1)</script>"}})
    assert "alert(1)</script>" not in text
    assert "<title>&lt;title&gt;</title>" in text


def test_a_page_contains_the_licences_of_the_libraries_in_it_and_no_others(files: dict[str, str]) -> None:
    files |= {"a.js": "", "vendor/b.js": "", "vendor/b.css": "", "vendor/c.js": "", "vendor/d.js": ""}
    files["vendor/LICENCES.txt"] = "About.\n\nB (b.js, b.css):\nThe B License (B)\n\nC (c.js): C's.\n"
    text = embedded("page", "a.js", {}, scripts=("vendor/b.js",), styles=("vendor/b.css",))
    assert "<!--\nB (b.js, b.css):\nThe B License (B)\n-->" in text
    assert "C's." not in text
    assert "<!--" not in embedded("page", "a.js", {})
    with pytest.raises(ValueError, match=r"does not name d\.js"):
        embedded("page", "a.js", {}, scripts=("vendor/d.js",))


def test_the_policy_names_the_scripts_and_forbids_all_else(files: dict[str, str]) -> None:
    files["a.js"] = ""
    text = embedded("page", "a.js", {})
    policy = text.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy and "http" not in policy
