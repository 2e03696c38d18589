"""A square of dependencies as a picture."""

from xml.etree import ElementTree

from penstock.draw.heat_map import CELL, LEFT, TOP, svg_heat_map, text_heat_map

SQUARE = [[0.0, 0.5, 0.001], [0.0, 0.0, 1e-6], [0.0, 0.0, 0.0]]
SPACE = "{http://www.w3.org/2000/svg}"


def test_the_picture_has_a_square_for_each_pair_and_a_frame_for_each_run() -> None:
    root = ElementTree.fromstring(svg_heat_map(SQUARE, [range(1, 3)], "a < b"))
    squares = [each for each in root.iter(f"{SPACE}rect") if each.find(f"{SPACE}title") is not None]
    assert len(squares) == 3
    titles = [each.findtext(f"{SPACE}title") for each in squares]
    assert titles == ["1 without 0: 0.5", "2 without 0: 0.001", "2 without 1: 1e-06"]
    (frame,) = (each for each in root.iter(f"{SPACE}rect") if each.get("fill") == "none")
    assert (frame.get("x"), frame.get("y")) == (str(LEFT + CELL), str(TOP + CELL))
    assert frame.get("width") == str(2 * CELL)
    assert any(each.text == "a < b" for each in root.iter(f"{SPACE}text"))


def test_larger_numbers_are_darker_and_large_models_have_no_numbers_in_squares() -> None:
    colours = [
        int(each.get("fill", "#ffffff")[3:5], 16)
        for each in ElementTree.fromstring(svg_heat_map(SQUARE, [], "")).iter(f"{SPACE}rect")
        if each.find(f"{SPACE}title") is not None
    ]
    assert colours[0] < colours[1] < colours[2]
    large = [[0.1] * 20] * 20
    words = ElementTree.fromstring(svg_heat_map(large, [], "")).iter(f"{SPACE}text")
    assert not any(each.text == ".10" for each in words)


def test_nothing_is_before_the_block_that_is_left_out() -> None:
    lines = text_heat_map([[0.9, 0.9], [0.9, 0.9]]).splitlines()
    assert lines[1].split() == ["0", ".", "#"]
    assert lines[2].split() == ["1", ".", "."]
