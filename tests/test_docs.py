"""The documentation holds together: each link leads to a file and a heading that exist, and so does
each page that a message of the program names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGE = re.compile(r"\bdocs/[\w./-]+\.md\b")


def prose(path: Path) -> str:
    """The text without fenced blocks and code spans, in which nothing is a link or a heading."""
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(`+)(?!`).*?\1", lambda code: re.sub(r"[\[\]]", "", code[0]), text)


def anchors(path: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(prose(page)):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_that_the_program_names_is_there() -> None:
    named = {
        (str(path.relative_to(ROOT)), page)
        for room in ("console", "screens", "widgets")
        for path in sorted((ROOT / room).rglob("*"))
        if path.suffix in (".py", ".yaml")
        for page in PAGE.findall(path.read_text("utf-8"))
    }
    assert len(named) > 5
    assert {one for one in named if not (ROOT / one[1]).exists()} == set()
