"""A timeline as a trace for Chrome and Perfetto."""

import json
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from draw.samples import SAMPLES, braided, plain, sliced, timeline
from penstock.draw.trace import render
from penstock.errors import ShapeError

Event = dict[str, Any]


def events(*drawn: Any, phase: str = "") -> list[Event]:
    found: list[Event] = json.loads(render(drawn))["traceEvents"]
    return [event for event in found if event["ph"] == phase or not phase]


def nanoseconds(event: Event) -> tuple[int, int]:
    """Start and end; the trace counts microseconds."""
    start = round(event["ts"] * 1000)
    return start, start + round(event.get("dur", 0) * 1000)


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_op_is_one_event_at_its_time(sample: str) -> None:
    drawn = SAMPLES[sample]()
    found = Counter(
        (event["name"], event["pid"], *nanoseconds(event))
        for event in events(drawn, phase="X")
        if event["cat"] != "transfer"
    )
    assert found == Counter(
        (f"PP:{span.op}", span.device, round(span.start * 10**6), round(span.end * 10**6))
        for span in drawn.spans()
    )


@pytest.mark.parametrize("sample", SAMPLES)
def test_events_of_one_track_never_overlap(sample: str) -> None:
    by_track = defaultdict(list)
    for event in events(SAMPLES[sample](), phase="X"):
        by_track[event["pid"], event["tid"]].append(nanoseconds(event))
    for spans in by_track.values():
        spans.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_transfer_is_an_arrow_from_its_writer_to_its_reader(sample: str) -> None:
    drawn = SAMPLES[sample]()
    arrows: dict[str, dict[str, Event]] = defaultdict(dict)
    for event in events(drawn):
        if event["ph"] in "sf":
            assert event["ph"] not in arrows[event["id"]]
            arrows[event["id"]][event["ph"]] = event
    moves, table = drawn.transfers, drawn.schedule.table
    wanted = Counter(
        (f"PP:{table.op(writer)}", f"PP:{table.op(reader)}", payload)
        for writer, reader, payload in zip(moves.writer, moves.reader, moves.payload)
    )
    around = op_around(events(drawn, phase="X"))
    found = Counter(
        (around(ends["s"]), around(ends["f"]), ends["s"]["name"]) for ends in arrows.values()
    )
    assert found == wanted
    assert all(ends["s"]["ts"] <= ends["f"]["ts"] for ends in arrows.values())


def op_around(lasting: list[Event]) -> Any:
    """Finds the event that a viewer binds an arrow's end to: the one around its time."""

    def find(arrow: Event) -> str:
        at, _ = nanoseconds(arrow)
        names: list[str] = [
            event["name"]
            for event in lasting
            if (event["pid"], event["tid"]) == (arrow["pid"], arrow["tid"])
            and nanoseconds(event)[0] <= at < nanoseconds(event)[1]
        ]
        assert len(names) == 1
        return names[0]

    return find


def test_a_braided_lane_has_two_tracks() -> None:
    names = [
        (event["pid"], event["args"]["name"])
        for event in events(braided())
        if event["name"] == "thread_name" and "compute" in event["args"]["name"]
    ]
    assert names == [
        (0, "compute"),
        (0, "compute, strand 2"),
        (1, "compute"),
        (1, "compute, strand 2"),
    ]


def test_each_link_and_payload_has_its_track() -> None:
    names = {
        (event["pid"], event["args"]["name"])
        for event in events(plain())
        if event["name"] == "thread_name" and "send" in event["args"]["name"]
    }
    forward = {(device, f"send x to device {device + 1}") for device in range(3)}
    assert names == forward | {(device + 1, f"send g to device {device}") for device in range(3)}


def test_transfers_under_way_together_are_spread_over_tracks() -> None:
    slow = timeline("1f1b", 2, 4, hop=Fraction(5, 2))
    names = {e["args"]["name"] for e in events(slow) if e["name"] == "thread_name"}
    assert {"send x to device 1", "send x to device 1, strand 2"} <= names


def test_every_track_has_a_name_and_a_place() -> None:
    found = events(sliced())
    used = {(event["pid"], event["tid"]) for event in found if event["ph"] in "Xsf"}
    for about in ("thread_name", "thread_sort_index"):
        named = [(e["pid"], e["tid"]) for e in found if e["name"] == about]
        assert len(named) == len(set(named))
        assert used == set(named)
    assert len({tid for _, tid in used}) == len(used)
    assert 0 not in {tid for _, tid in used}


def test_the_memory_counter_reaches_each_peak() -> None:
    drawn = sliced()
    most = [Fraction(0)] * 4
    for event in events(drawn, phase="C"):
        level = Fraction(event["args"]["memory"]).limit_denominator(1000)
        most[event["pid"]] = max(most[event["pid"]], level)
    assert tuple(most) == drawn.peak


def test_schedules_stand_one_after_the_other() -> None:
    found = events(plain(), braided())
    names = {e["pid"]: e["args"]["name"] for e in found if e["name"] == "process_name"}
    assert names == {
        **{device: f"1f1b device {device}" for device in range(4)},
        **{4 + device: f"dualpipev device {device}" for device in range(2)},
    }
    ids = Counter((event["ph"], event["id"]) for event in found if event["ph"] in "sf")
    assert set(ids.values()) == {1}


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ShapeError, match="no timeline"):
        render([])
