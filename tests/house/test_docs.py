"""Every page can be reached, and every link leads somewhere."""

from pathlib import Path

import pytest

from house.conftest import Plant
from house.docs import anchors, dead_links, unreached
from house.source import none_of


def test_every_link_leads_somewhere(house: Path) -> None:
    none_of(dead_links(house))


def test_the_index_reaches_every_page(house: Path) -> None:
    none_of(unreached(house))


def test_a_page_that_the_index_does_not_link_is_found(plant: Plant) -> None:
    root = plant(
        {
            "docs/index.md": "[here](guide/a.md)\n",
            "docs/guide/a.md": "",
            "docs/guide/b.md": "",
            "docs/schedules/c.md": "",
        }
    )
    assert unreached(root) == ["docs/guide/b.md is not linked in docs/index.md"]


@pytest.mark.parametrize("target", ["gone.md", "../gone.md", "other.md#gone", "#gone", "gone/"])
def test_a_dead_link_is_named_with_its_line(plant: Plant, target: str) -> None:
    root = plant({"docs/index.md": f"# Title\n\nsee [it]({target})\n", "docs/other.md": "# Here\n"})
    assert dead_links(root) == [f"docs/index.md:3: {target} leads nowhere"]


def test_a_dead_link_in_the_readme_is_found(plant: Plant) -> None:
    assert dead_links(plant({"README.md": "![picture](docs/gone.svg)\n"})) == [
        "README.md:1: docs/gone.svg leads nowhere"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[it](other.md)",
        "[it](other.md#one-word-per-thing)",
        "[it](https://example.org/gone)",
        "`[it](gone.md)`",
        "```\n[it](gone.md)\n```",
    ],
)
def test_a_live_link_a_foreign_one_and_code_are_fine(plant: Plant, text: str) -> None:
    root = plant({"docs/index.md": text, "docs/other.md": "## One word, per thing\n"})
    assert dead_links(root) == []


def test_headings_are_called_as_the_usual_renderers_call_them() -> None:
    assert anchors("# A `b`: c-d\n```\n# no heading\n```\n## E\n") == {"a-b-c-d", "e"}
