"""Who owns which elements of a stage's flat buffers."""

import pytest

from penstock.arch.layers.parameter import Parameter
from penstock.arch.ownership import MESSAGE, Ownership, message_room
from penstock.arch.parameter_layout import lay_out

SHAPES = {"a": (5,), "b": (3, 2), "c": (7,)}
LAYOUT = lay_out({name: Parameter(name, shape) for name, shape in SHAPES.items()})


@pytest.mark.parametrize("of", [1, 2, 3, 4, 25])
@pytest.mark.parametrize("apart", [(), ("a",), ("c",), ("a", "c")])
def test_every_element_has_one_owner(of: int, apart: tuple[str, ...]) -> None:
    owners = [Ownership(LAYOUT, index, of, apart) for index in range(of)]
    taken = [n for own in owners for run in own.runs for n in run.own]
    assert sorted(taken) == [*range(18)]
    assert sum(own.elements for own in owners) == 18
    most = max(own.elements for own in owners)
    assert most - min(own.elements for own in owners) <= 1 + len(apart)
    for name, part in LAYOUT.parts.items():
        pieces = [own.parts[name] for own in owners]
        assert [n for p in pieces for n in range(p.offset, p.stop)] == [
            *range(part.offset, part.stop)
        ]


def test_parts_lie_one_behind_the_other_among_what_a_rank_owns() -> None:
    own = Ownership(LAYOUT, 1, 3)
    found = {name: (p.offset, p.stop, p.kept, p.inside) for name, p in own.parts.items()}
    assert found == {
        "a": (0, 0, 0, slice(0, 0)),
        "b": (6, 11, 0, slice(1, 6)),
        "c": (11, 12, 5, slice(0, 1)),
    }


def test_a_parameter_apart_is_dealt_alike_wherever_it_lies() -> None:
    shared = {"e": (7,)}
    first = lay_out({n: Parameter(n, s) for n, s in (shared | SHAPES).items()})
    last = lay_out({n: Parameter(n, s) for n, s in (SHAPES | shared).items()})
    for index in range(3):
        inside = [Ownership(at, index, 3, ("e",)).parts["e"].inside for at in (first, last)]
        assert inside[0] == inside[1]


def test_a_buffer_of_the_stage_and_one_of_what_is_owned_have_their_own_places() -> None:
    own = Ownership(LAYOUT, 1, 2, ("a",))
    assert [own.range_in(18, run) for run in own.runs] == [slice(2, 5), slice(11, 18)]
    assert [own.range_in(own.elements, run) for run in own.runs] == [slice(0, 3), slice(3, 10)]
    c = own.parts["c"]
    assert own.slice_in(18, c) == slice(11, 18)
    assert own.slice_in(own.elements, c) == slice(3, 10)


def test_parts_of_a_run_count_from_its_first_owned_element() -> None:
    own = Ownership(LAYOUT, 1, 3)
    (run,) = own.runs
    found = {name: (part.offset, part.stop) for name, part in own.parts_of(run).items()}
    assert found == {"b": (0, 5), "c": (5, 6)}


def test_adding_up_takes_room_for_one_message_of_each_other_rank() -> None:
    assert message_room(10, 1) == 0
    assert message_room(10, 4) == 3 * 3
    assert message_room(100 * MESSAGE, 4) == 3 * MESSAGE
