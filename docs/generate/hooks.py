"""Changes to pages before MkDocs renders them (``hooks`` in mkdocs.yml), because pages are written for a repository."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, normpath
from typing import Any

from mkdocs.plugins import get_plugin_logger

_REPOSITORY = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#\s]*)(#[^)\s]*)?\)")
_CODE = re.compile(r"`[^`\n]*`")
_log = get_plugin_logger("weft")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Markdown as Python's renderer needs it."""
    source = page.file.src_uri
    text = _LINK.sub(lambda link: _link(link, source), markdown)
    return "\n".join(_row(line) if line.lstrip().startswith("|") else line for line in text.split("\n"))


def _link(link: re.Match[str], source: str) -> str:
    """A link to a file of the repository that is no page becomes the file's path: the site holds the pages only."""
    path = normpath(f"docs/{dirname(source)}/{link[2]}")
    if path.startswith("docs/"):
        return link[0]
    if not (_REPOSITORY / path).exists():
        _log.warning(f"{source} has a link to {link[2]}, which does not exist")
    return f"{link[1]} (`{path}`)" if link[1].strip("/") != path.strip("/") else f"`{path}`"


def _row(line: str) -> str:
    """In a table, a code host needs ``\\|`` also in code; here it would be shown."""
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), line)
