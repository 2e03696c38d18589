from penstock.schedules import registry
from write_gallery import PAGE, PICTURES, page, picture

ANEW = "python scripts/write_gallery.py writes it anew"


def test_the_page_shows_every_schedule() -> None:
    assert PAGE.read_text() == page(), ANEW


def test_the_pictures_are_what_is_drawn() -> None:
    assert {path.stem for path in PICTURES.glob("*.svg")} == set(registry())
    for name in registry():
        assert (PICTURES / f"{name}.svg").read_text() == picture(name), ANEW
