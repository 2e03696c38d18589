"""Compiled rules: what is worked out for one unit holds for any number."""

import numpy as np

from loops import each
from penstock.core.rules import NAMES, buffer_bases, compile_merged, compile_rules
from penstock.core.shape import Shape

KINDS = frozenset("FBIWEDST")
SHAPES = [
    Shape(2, 4, (3, 1), skips=((0, 2),), boundary_bytes=(1, 2, 3)),
    Shape(2, 2, (1,) * 5, embed="E", loss="T"),
]


@each("shape", SHAPES)
def test_every_place_is_the_first_unit_of_an_instance_of_its_buffer(shape: Shape) -> None:
    bases, compiled = buffer_bases(shape, KINDS), compile_rules(shape, KINDS)
    for side in (compiled.reads, compiled.writes):
        for number, places in zip(side.buffer.tolist(), side.place):
            base, room = bases.get(NAMES[number], (0, 0))
            found = places[places >= 0] - base
            assert ((found >= 0) & (found < room) & (found % shape.units == 0)).all()
    assert compiled.room == max(base + room for base, room in bases.values())


def test_shapes_that_differ_in_their_batch_have_the_same_instances() -> None:
    one, many = (Shape(2, 4, (1,) * count, skips=((0, 2),)) for count in (1, 7))
    for compiled in (compile_rules, compile_merged):
        few, more = compiled(one, KINDS).reads, compiled(many, KINDS).reads
        assert np.array_equal(np.where(few.place > 0, 7 * few.place, few.place), more.place)
