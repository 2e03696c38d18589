import pytest

from penstock.schedules import registry
from write_readme import PICTURE, README, picture, rewritten


@pytest.mark.long
def test_the_table_in_the_readme_is_the_registry() -> None:
    page = README.read_text()
    assert page == rewritten(page), "python scripts/write_readme.py writes it anew"
    assert all(f"docs/schedules/{name}.md" in page for name in registry())


def test_the_picture_in_the_readme_is_what_is_drawn() -> None:
    assert PICTURE.read_text() == picture(), "python scripts/write_readme.py draws it anew"
