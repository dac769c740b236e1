"""Every relative link of the documentation leads to a file and a heading that exist, and docs/ stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.paths import ROOT

MOST_WORDS = 25_000  # in all pages of docs/; measurements belong to research/docs/
PAGES = [ROOT / "README.md", ROOT / "assets" / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("research/docs/*.md")]


def anchors(page: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page; equal headings are numbered from the second on."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page, flags=re.M | re.S), re.M):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = sum(re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", each) is not None for each in found)
        found.add(f"{anchor}-{number}" if number else anchor)
    return found


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert broken(page) == []


def test_a_link_to_a_missing_file_or_heading_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One: two\n\n[a](#one-two) [b](#three) [c](page.md#one-two) [d](other.md) [e](https://example.org)"
    )
    assert broken(page) == ["#three", "other.md"]


def test_the_documentation_of_users_operators_and_contributors_stays_short() -> None:
    words = sum(
        sum(any(letter.isalnum() for letter in word) for word in page.read_text(encoding="utf-8").split())
        for page in ROOT.glob("docs/*.md")
    )
    assert words <= MOST_WORDS
