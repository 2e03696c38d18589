"""What is registered is what the folder, the pages and the golden files hold."""

from pathlib import Path

from house.conftest import Plant
from house.registry import files_and_order, owners, pages_and_golden
from house.source import none_of
from penstock.schedules import READING_ORDER, modules, registry

ORDER = "src/penstock/schedules/__init__.py"
RECORD = "@schedule(name='a')\ndef a(shape): return []\n"


def test_every_file_of_the_folder_registers_a_schedule(house: Path) -> None:
    none_of(files_and_order(house))


def test_every_schedule_has_its_page_and_its_golden_lanes(house: Path) -> None:
    none_of(pages_and_golden(house, registry()))


def test_the_registry_holds_what_the_files_define() -> None:
    assert set(owners()) == set(registry())


def test_files_are_found_in_the_order_of_reading() -> None:
    named = [module.split(".")[-1] for module in modules()]
    assert named[: len(READING_ORDER)] == list(READING_ORDER)
    assert named[len(READING_ORDER) :] == sorted(named[len(READING_ORDER) :])


def test_a_file_without_a_schedule_is_found_and_the_missing_line_is_named(plant: Plant) -> None:
    root = plant({ORDER: "READING_ORDER = ()\n", "src/penstock/schedules/a.py": ""})
    assert files_and_order(root) == [
        "src/penstock/schedules/a.py registers no schedule: decorate its generator with "
        "@schedule(...), or move what schedules share to schedules/generators/"
    ]


def test_a_file_with_a_schedule_needs_no_line(plant: Plant) -> None:
    root = plant({ORDER: "READING_ORDER = ()\n", "src/penstock/schedules/a.py": RECORD})
    assert files_and_order(root) == []


def test_a_shared_generator_needs_no_schedule(plant: Plant) -> None:
    shared = "src/penstock/schedules/generators/streams.py"
    assert files_and_order(plant({ORDER: "READING_ORDER = ()\n", shared: ""})) == []


def test_a_stale_name_and_a_repeated_name_in_the_order_are_found(plant: Plant) -> None:
    files = {ORDER: "READING_ORDER = ('a', 'a', 'b')\n", "src/penstock/search/joint/a.py": RECORD}
    assert files_and_order(plant(files)) == [
        "READING_ORDER of src/penstock/schedules/__init__.py names 'b', which registers nothing",
        "READING_ORDER of src/penstock/schedules/__init__.py names 'a' twice",
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
