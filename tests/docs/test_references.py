"""The generated references are those of the code, their examples work, and the site is complete in itself."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from docs.generate import command_line, manifest, settings
from docs.generate.manifest_examples import EXAMPLES, WHOLE, complete, installation
from docs.generate.pages import PAGES, REFERENCES, write

from weft_core.manifest import parse_manifest

_ROOT = Path(__file__).parents[2]
_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "embed": "src", "object": "data"}
"""What a browser fetches without being asked to, besides the stylesheets and icons of ``link``."""
_KEYS = {key.path: key for key in manifest.all_keys()}


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    write(folder)
    return folder


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_is_as_the_code_has_it(generated: Path, name: str) -> None:
    committed = (REFERENCES / name).read_text(encoding="utf-8")
    assert committed == (generated / name).read_text(encoding="utf-8"), (
        f"docs/reference/{name} is out of date: run `make docs` and commit what it writes"
    )


def test_nothing_else_lies_among_the_references() -> None:
    assert {file.name for file in REFERENCES.iterdir()} == {*PAGES, "site.css"}


def test_the_tests_that_pages_name_are_there() -> None:
    pages = [*_ROOT.glob("*.md"), *(_ROOT / "docs").glob("*.md")]
    named = {name for page in pages for name in re.findall(r"\btests/[\w/-]+\.py", page.read_text(encoding="utf-8"))}
    assert len(named) > 10
    assert {name for name in named if not (_ROOT / name).exists()} == set()


# --- the manifest ----------------------------------------------------------------------------------------------------


def test_every_key_of_the_manifest_has_a_meaning() -> None:
    lacking = [path for path, key in _KEYS.items() if not key.field.doc.strip()]
    assert not lacking, "core/weft_core/manifest/fields.py says nothing about these"


def test_every_key_of_the_manifest_has_an_example_and_no_example_is_of_another() -> None:
    assert set(EXAMPLES) == set(_KEYS), "docs/generate/manifest_examples.py has one for each key"


@pytest.mark.parametrize("path", EXAMPLES)
def test_an_example_of_the_manifest_is_valid_and_shows_its_key(path: str) -> None:
    parse_manifest(complete(EXAMPLES[path]), installation())
    assert list(_values(yaml.load(EXAMPLES[path], Loader=yaml.BaseLoader), path.replace("[]", ".[]").split(".")))


def test_the_whole_manifest_at_the_top_of_the_page_is_valid() -> None:
    parse_manifest(WHOLE, installation())


def _values(node: Any, steps: list[str]) -> Iterator[Any]:
    """What stands at a path; ``[]`` is any entry of a list (or the only one), LABEL and NAME are any key."""
    if not steps:
        yield node
    elif steps[0] == "[]":
        for entry in node if isinstance(node, list) else [node]:
            yield from _values(entry, steps[1:])
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == steps[0] or steps[0] in ("LABEL", "NAME"):
                yield from _values(value, steps[1:])


# --- the settings, the command line ----------------------------------------------------------------------------------


def test_every_setting_has_a_meaning() -> None:
    lacking = [
        setting.variable for section in settings.sections() for setting in section.settings if not setting.doc.strip()
    ]
    assert not lacking, "a docstring below the field is missing in core/weft_core/settings.py or engine_settings.py"


@pytest.mark.parametrize("page", ["index.md", "tutorial.md"])
def test_every_command_that_a_new_user_reads_exists_with_its_options(page: str) -> None:
    known = {command.name: command for command in command_line.all_commands()}
    lines = re.findall(r"^(?:\$ | {4})(weft .*)$", (_ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert lines
    for line in lines:
        words = shlex.split(line, comments=True)
        name = next((" ".join(words[:n]) for n in (3, 2) if " ".join(words[:n]) in known), None)
        assert name, f"there is no such command: {line}"
        options = {flag for option in known[name].options for flag in re.findall(r"--?[a-z][\w-]*", option.name)}
        unknown = {word for word in words if re.fullmatch(r"--?[a-z][\w-]*", word)} - options
        assert not unknown, f"`{name}` has no such option: {line}"


# --- the site --------------------------------------------------------------------------------------------------------


def test_the_index_lists_every_page() -> None:
    pages = _ROOT / "docs"
    listed = set(re.findall(r"\]\(([\w/-]+\.md)\)", (pages / "index.md").read_text(encoding="utf-8")))
    there = {path.relative_to(pages).as_posix() for path in (*pages.glob("*.md"), *pages.glob("reference/*.md"))}
    assert there - listed == {"index.md"}


def _build(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """What `make docs` does after the references: with --strict, a warning fails."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run([*command, "--site-dir", str(folder)], env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = _build(_ROOT / "mkdocs.yml", folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_strict_build_makes_a_page_of_each_file(site: Path) -> None:
    pages = {file.relative_to(_ROOT / "docs").with_suffix(".html") for file in (_ROOT / "docs").rglob("*.md")}
    assert pages | {Path("404.html")} == {file.relative_to(site) for file in site.rglob("*.html")}


def test_the_strict_build_refuses_broken_links_and_pages_that_are_not_listed(tmp_path: Path) -> None:
    broken = {
        "[a page](nothing.md)": "'nothing.md'",
        "[a heading](other.md#nowhere)": "'#nowhere'",
        "[a file of the repository](../nothing.txt)": "../nothing.txt",
    }
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "index.md").write_text("\n\n".join(["# Index", *broken, "[fine](other.md#other)"]))
    (pages / "other.md").write_text("# Other\n")
    (pages / "unlisted.md").write_text("# Unlisted\n")
    ours = {"INHERIT": str(_ROOT / "mkdocs.yml"), "hooks": [str(_ROOT / "docs/generate/hooks.py")], "extra_css": []}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(ours | {"nav": ["index.md", "other.md"]}))
    built = _build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert built.returncode == 1
    said = built.stdout + built.stderr
    assert "Aborted with 4 warnings" in said
    assert [warning for warning in (*broken.values(), "unlisted.md") if warning not in said] == []


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    foreign = {
        f"{file.relative_to(site)}: {url}" for file in site.rglob("*.html") for url in _loads(file) if _host(url)
    }
    foreign |= {
        f"{file.relative_to(site)}: {url}" for file in site.rglob("*.css") for url in _named_in(file) if _host(url)
    }
    assert not foreign


def _host(url: str) -> str:
    parts = urlsplit(url.strip())
    return "" if parts.scheme == "data" else parts.netloc


def _named_in(stylesheet: Path) -> list[str]:
    return re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", stylesheet.read_text(encoding="utf-8"))


def _loads(file: Path) -> list[str]:
    parser = _Loads()
    parser.feed(file.read_text(encoding="utf-8"))
    return parser.urls


class _Loads(HTMLParser):
    """The URLs that a browser fetches with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.urls.append(given.get(_LOADED.get(tag, "")) or "")
        self.urls += [part.split()[0] for part in (given.get("srcset") or "").split(",") if part.strip()]
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.urls.append(given.get("href") or "")
