import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/concepts/slices.md"


def test_the_page_about_slices_prints_its_numbers() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.attempted > 20
    assert result.failed == 0
