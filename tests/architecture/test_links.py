"""Every link inside the project leads to a file, and to a heading, that there is; so does every file that is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "benchmarks", "llamagym_tui", "sft_data", "tests")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md"))]
)


def text_of(page: Path) -> str:
    """The page without its examples."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """As GitHub names them."""
    headings = re.findall(
        r"^#+ (.*)$",
        re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL),
        re.MULTILINE,
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    text = text_of(page)
    pictures = re.findall(r'<img src="([^"]+)"', text)
    for link in [*re.findall(r"\]\(((?!https?:)[^)\s]+)\)", text), *pictures]:
        target, _, anchor = link.partition("#")
        there = page.parent / target if target else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_link_to_no_file_or_no_heading_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What is ±?\n[a](#what-is-) [b](#what) [c](page.md#what-is-) [d](other.md) `[e](no.md)`"
        ' <img src="no.svg">\n',
        "utf-8",
    )
    assert broken_links(page) == ["#what", "other.md", "no.svg"]


def test_the_site_names_pages_that_there_are() -> None:
    lines = (ROOT / "mkdocs.yml").read_text("utf-8").splitlines()
    named = [line.split(": ")[1] for line in lines if re.fullmatch(r"  - .*: .*\.md", line)]
    assert "README.md" in named
    assert [name for name in named if not (ROOT / name).is_file()] == []


PLACES = ("", "llamagym_tui", "llamagym_tui/engine")
"""Folders from which documents name files of Python."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_document_names_is_there(page: Path) -> None:
    named = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", page.read_text(encoding="utf-8"))
    gone = [name for name in named if not any((ROOT / place / name).exists() for place in PLACES)]
    assert gone == []
