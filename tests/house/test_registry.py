"""What the registry lists is what the folder, the pages and the golden files hold."""

from pathlib import Path

from house.conftest import Plant
from house.registry import list_and_folder, owners, pages_and_golden
from house.source import none_of
from penstock.schedules import registry

LIST = "src/penstock/schedules/__init__.py"


def test_the_list_is_the_folder(house: Path) -> None:
    none_of(list_and_folder(house))


def test_every_schedule_has_its_page_and_its_golden_lanes(house: Path) -> None:
    none_of(pages_and_golden(house, registry()))


def test_the_registry_holds_what_the_files_define() -> None:
    assert set(owners()) == set(registry())


def test_a_file_outside_the_list_is_found(plant: Plant) -> None:
    root = plant({LIST: "MODULES = ()\n", "src/penstock/schedules/a.py": ""})
    assert list_and_folder(root) == ["schedules/a.py is not in MODULES"]


def test_a_shared_generator_needs_no_line(plant: Plant) -> None:
    root = plant({LIST: "MODULES = ()\n", "src/penstock/schedules/generators/streams.py": ""})
    assert list_and_folder(root) == []


def test_a_line_without_a_file_and_a_repeated_line_are_found(plant: Plant) -> None:
    root = plant({LIST: "MODULES = ('a', 'a', 'b')\n", "src/penstock/schedules/a.py": ""})
    assert list_and_folder(root) == [
        "MODULES has 'b', but there is no such file",
        "MODULES has 'a' twice",
    ]


def test_missing_and_orphaned_pages_and_golden_lanes_are_found(plant: Plant) -> None:
    root = plant({"docs/schedules/old.md": "", "tests/golden/a.txt": ""})
    assert pages_and_golden(root, ["a"]) == [
        "docs/schedules/a.md is missing",
        "docs/schedules/old.md is of no schedule",
    ]
    assert pages_and_golden(root, ["old"]) == [
        "tests/golden/old.txt is missing",
        "tests/golden/a.txt is of no schedule",
    ]
