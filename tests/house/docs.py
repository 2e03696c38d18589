"""Links in the pages lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

from house.source import pages

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_CODE = re.compile(r"^(`{3,}|~{3,}).*?^\1[ \t]*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+\s+(.*?)\s*$", re.MULTILINE)


def dead_links(root: Path) -> list[str]:
    """Relative links to files or headings that do not exist."""
    return [
        f"{page.relative_to(root)}:{line}: {target} leads nowhere"
        for page in pages(root)
        for line, target in links(page.read_text())
        if not _resolves(page, target)
    ]


def unreached(root: Path) -> list[str]:
    """Pages under docs that the index does not link; the folder of schedules is linked whole."""
    index = root / "docs/index.md"
    reached = {(index.parent / target).resolve() for _, target in links(index.read_text())}
    wanted = [page.resolve() for page in (root / "docs").rglob("*.md") if page != index]
    return [
        f"{page.relative_to(root.resolve())} is not linked in docs/index.md"
        for page in sorted(wanted)
        if page not in reached and page.parent.name != "schedules"
    ]


def links(text: str) -> Iterator[tuple[int, str]]:
    """Line and target of every link inside the repository, code left out."""
    prose = without_code(text)
    for found in _LINK.finditer(prose):
        if not re.match(r"[a-z]+:", found[1]):
            yield prose.count("\n", 0, found.start()) + 1, found[1]


def without_code(text: str) -> str:
    """The prose of a page; what was code is blank, so that lines and columns stay."""
    return _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)


def _resolves(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path) if path else page
    if not file.exists():
        return False
    return not anchor or anchor in anchors(file.read_text())


def anchors(text: str) -> set[str]:
    """What the headings of a page are called in a link."""
    headings = _HEADING.findall(re.sub(r"^(`{3,}).*?^\1", "", text, flags=re.M | re.S))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
