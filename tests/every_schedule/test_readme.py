from every_schedule.readme import PICTURE, README, picture, rewritten
from penstock.schedules import registry


def test_the_table_in_the_readme_is_the_registry() -> None:
    page = README.read_text()
    assert page == rewritten(page), "python tests/every_schedule/readme.py writes it anew"
    assert all(f"docs/schedules/{name}.md" in page for name in registry())


def test_the_picture_in_the_readme_is_what_is_drawn() -> None:
    assert PICTURE.read_text() == picture(), "python tests/every_schedule/readme.py draws it anew"
