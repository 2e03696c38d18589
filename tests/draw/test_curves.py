"""Curves of several runs as a picture."""

from xml.etree import ElementTree

from penstock.draw.curves import HEIGHT, LEFT, TOP, WIDTH, Panel, svg_curves

SPACE = "{http://www.w3.org/2000/svg}"
LOSSES = {"a < b": [(0.0, 4.0), (50.0, 3.0), (100.0, 2.0)], "plain": [(0.0, 4.0), (100.0, 3.0)]}
PANELS = [Panel("tokens", LOSSES), Panel("seconds", {"a < b": [(0.0, 4.0), (8.0, 2.0)]})]


def test_every_curve_is_drawn_from_left_to_right_and_falls() -> None:
    root = ElementTree.fromstring(svg_curves(PANELS, "loss"))
    lines = [*root.iter(f"{SPACE}polyline")]
    assert [line.findtext(f"{SPACE}title") for line in lines] == ["a < b", "plain", "a < b"]
    for line in lines:
        places = [[*map(float, place.split(","))] for place in line.get("points", "").split()]
        assert places == sorted(places)
        heights = [y for _, y in places]
        assert heights == sorted(heights)
        assert all(TOP <= y <= TOP + HEIGHT for y in heights)
    first = [float(place.split(",")[0]) for place in lines[0].get("points", "").split()]
    assert first == [LEFT, LEFT + WIDTH / 2, LEFT + WIDTH]


def test_curves_differ_in_more_than_colour_and_axes_have_numbers_and_names() -> None:
    root = ElementTree.fromstring(svg_curves(PANELS, "loss"))
    dashes = [line.get("stroke-dasharray") for line in root.iter(f"{SPACE}polyline")]
    assert dashes[0] != dashes[1]
    words = [each.text for each in root.iter(f"{SPACE}text")]
    assert {"loss", "a < b", "plain", "tokens", "seconds", "100", "8", "2", "4"} <= {*words}


def test_a_level_curve_has_a_scale_too() -> None:
    (line,) = ElementTree.fromstring(
        svg_curves([Panel("steps", {"flat": [(0.0, 1.0), (2.0, 1.0)]})], "")
    ).iter(f"{SPACE}polyline")
    assert len({place.split(",")[1] for place in line.get("points", "").split()}) == 1
