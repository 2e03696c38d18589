"""A timeline as a page: what is in the file. What the page does is in test_browser.py."""

import json
import re
from collections import defaultdict
from fractions import Fraction
from itertools import accumulate
from typing import Any

import pytest

from draw.samples import SAMPLES, braided, plain, renamed, sliced, split, timeline
from penstock.core.buffers import BUFFERS
from penstock.core.meaning import reads, writes
from penstock.draw.page.page import SCRIPTS, render
from penstock.errors import ShapeError
from penstock.sim import Timeline

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.S)


def data(*drawn: Timeline) -> dict[str, Any]:
    found = DATA.search(render(drawn))
    assert found
    decoded: dict[str, Any] = json.loads(found[1])
    return decoded


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_columns_hold_every_op_and_its_time(sample: str) -> None:
    drawn = SAMPLES[sample]()
    (columns,) = data(drawn)["timelines"]
    start = list(accumulate(columns["start"]))
    ops = zip(columns["kind"], columns["stage"], columns["mb"], columns["slice"])
    assert list(ops) == [tuple(op) for op in drawn.schedule.table.ops()]
    assert start == drawn.start.tolist()
    assert [s + d for s, d in zip(start, columns["duration"])] == drawn.end.tolist()


@pytest.mark.parametrize("drawn", [plain(), sliced(), split(), braided()], ids=str)
def test_the_edges_are_those_of_the_meaning_table(drawn: Timeline) -> None:
    """Each op, resolved on its own through `reads` and `writes`."""
    ops, shape = drawn.schedule.table.ops(), drawn.schedule.shape
    writer = {buf: row for row, op in enumerate(ops) for buf in writes(op, shape)}
    wanted = {
        (row, writer[buf], BUFFERS[buf.name].text)
        for row, op in enumerate(ops)
        for buf in reads(op, shape)
        if BUFFERS[buf.name].per != "home"
    }
    page = data(drawn)
    edges = page["timelines"][0]["edges"]
    readers = [row for row, count in enumerate(edges["count"]) for _ in range(count)]
    found = [
        (row, row - back, page["buffers"][buffer])
        for row, back, buffer in zip(readers, edges["back"], edges["buffer"])
    ]
    assert len(found) == len(wanted)
    assert set(found) == wanted


def test_a_transfer_arrives_one_hop_after_its_writer() -> None:
    drawn = timeline("1f1b", 4, 4, hop=Fraction(1, 2))
    device, columns = drawn.schedule.table.device, data(drawn)["timelines"][0]
    edges = columns["edges"]
    readers = [row for row, count in enumerate(edges["count"]) for _ in range(count)]
    delays = defaultdict(set)
    for row, back, delay in zip(readers, edges["back"], edges["delay"]):
        delays[bool(device[row] != device[row - back])].add(delay * columns["tick"])
    assert delays == {True: {0.5}, False: {0}}


def test_strands_say_which_ops_are_braided() -> None:
    drawn = braided()
    (columns,) = data(drawn)["timelines"]
    together = {
        str(op) for op, alone in zip(drawn.schedule.table.ops(), columns["alone"]) if alone == "0"
    }
    assert together == {str(op) for pair in drawn.schedule.pairs for op in pair}
    assert [lane["strands"] for lane in columns["lanes"]] == [2, 2]


def test_the_memory_columns_reach_each_peak() -> None:
    drawn = sliced()
    (columns,) = data(drawn)["timelines"]
    tops = [max(accumulate(curve["level"])) * drawn.grain for curve in columns["curves"]]
    assert tuple(tops) == drawn.peak


def test_the_page_is_one_file_without_addresses() -> None:
    text = render([plain()])
    assert not re.search(r"https?:|//[a-z]+\.[a-z]|@import|\bimport\b|fetch\(|XMLHttp|{{", text)
    assert set(re.findall(r'(?:src|href)="(.*?)"', text)) == {"data:,"}
    assert "default-src 'none'" in text


def test_every_script_of_the_folder_is_in_the_page() -> None:
    from importlib.resources import files

    names = {entry.name for entry in files("penstock.draw.page").iterdir()}
    assert {name for name in names if name.endswith(".js")} == set(SCRIPTS)


def test_no_name_can_end_the_script() -> None:
    name = "</script><script>alert(1)</script>{{data}}"
    text = render([renamed(name)])
    assert text.count("</script>") == render([plain()]).count("</script>")
    assert data(renamed(name))["timelines"][0]["name"] == name


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ShapeError, match="no timeline"):
        render([])
