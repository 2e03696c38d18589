"""Text lanes: what they look like, that they lose nothing, and how they refuse."""

from fractions import Fraction

import pytest
from hypothesis import given

from files.strategies import FULL, everything, schedules, small, usual
from loops import each
from penstock.core.ops import Op, parse_op
from penstock.core.schedule import After, Loan, Schedule
from penstock.core.shape import Shape
from penstock.errors import FormatError, ShapeError
from penstock.files import text


@pytest.mark.long
@usual
@given(schedules())
def test_a_schedule_comes_back_from_text_as_it_was(schedule: Schedule) -> None:
    assert everything(text.loads(text.dumps(schedule))) == everything(schedule)


def test_every_key_is_read_and_written() -> None:
    schedule = text.loads(FULL)
    assert text.dumps(schedule) == FULL
    assert schedule.name == "everything at once"
    assert schedule.shape == Shape(
        devices=2,
        stages=4,
        slices=(2, 1, 2),
        stage_share=(Fraction(1, 2), Fraction(3, 2), Fraction(1), Fraction(1)),
        kind_share=(
            ("W", (Fraction(1), Fraction(2), Fraction(3), Fraction(0))),
            ("act", (Fraction(1, 2), Fraction(0), Fraction(1), Fraction(1))),
        ),
        slice_share=(
            (Fraction(1, 4), Fraction(3, 4)),
            (Fraction(1),),
            (Fraction(1, 2), Fraction(1, 2)),
        ),
        boundary_bytes=(4096, 0, 8),
        skips=((0, 3), (1, 2)),
        weightless=frozenset({1, 3}),
        copies=2,
        embed="E",
        loss="T",
        to_attention="weights",
        layers=(3, 0, 2, 1),
    )
    assert schedule.pairs == (
        (Op("F", 0, 1), Op("B", 3, 0)),
        (Op("F", 0, 2), Op("F", 1, 2), Op("B", 3, 1)),
    )
    assert schedule.loans == (Loan(Op("F", 3, 0, 1), Op("F", 0, 1), 2),)
    assert schedule.gangs == (Op("F", 2, 0),)
    assert schedule.after == (After(Op("F", 0, 2), Op("B", 1, 0)),)
    assert schedule.shares == ((Op("O", 0, 0), Fraction(1, 2)),)
    assert schedule.lane(0, "copy") == [parse_op("0O0"), parse_op("0L0")]
    assert schedule.lane(1, "collective") == [parse_op("1G0"), parse_op("1Z0")]


def test_only_what_differs_from_its_default_is_written() -> None:
    assert text.dumps(small("")) == (
        "devices: 2\n"
        "stages: 2\n"
        "slices: 1 x 2\n"
        "0 compute: 0F0 0F1 0B0 0B1\n"
        "1 compute: 1F0 1B0 1F1 1B1\n"
    )


def test_comments_blank_lines_order_and_line_ends_do_not_matter() -> None:
    loose = (
        "# by hand\r\n\n1 compute:1F0   1B0 1F1\t1B1\n  # more\n slices : 1   1 \nstages: 2\n"
        "0 compute : 0F0 0F1 0B0 0B1\ndevices: 2\n0 copy:\n"
    )
    assert text.loads(loose) == small()


def test_slice_shares_given_once_hold_for_every_microbatch() -> None:
    written = "devices: 1\nstages: 1\nslices: 2 x 3\nslice_share: 1/4 3/4\n0 compute: 0F0\n"
    schedule = text.loads(written)
    assert schedule.shape.slice_share == ((Fraction(1, 4), Fraction(3, 4)),) * 3
    assert text.dumps(schedule) == written


def test_the_name_in_the_file_wins_over_the_one_it_is_read_under() -> None:
    assert text.loads(text.dumps(small("inside")), "outside").name == "inside"
    assert text.loads(text.dumps(small("")), "outside").name == "outside"


@pytest.mark.parametrize("name", ["two\nlines", " padded", "bell\a", "\ud800", "x" * 301])
def test_a_name_that_does_not_fit_a_line_is_not_written(name: str) -> None:
    with pytest.raises(ShapeError, match="cannot be printed on one line"):
        text.dumps(small(name))


REFUSALS = {
    "an unknown key": ("stage: 2", 1, "the key 'stage' is not known", "did you mean 'stages'?"),
    "a key given twice": ("devices: 2\ndevices: 2", 2, "given twice", "line 1"),
    "no colon": ("0 compute 0F0", 1, "neither a key nor a lane", "0 compute: 0F0"),
    "three words": ("0 compute lane: 0F0", 1, "neither a key nor a lane", "0 compute: 0F0"),
    "a word for a number": ("devices: two", 1, "'two' is not an integer", "digits"),
    "a negative number": ("devices: -1", 1, "'-1' is not an integer", "digits"),
    "no devices": ("devices: 0", 1, "0 is not an integer from 1", "digits"),
    "a huge number": ("devices: " + "9" * 5000, 1, "is not an integer", "digits"),
    "an Arabic digit": ("devices: \u0663", 1, "is not an integer", "digits"),
    "too many devices": ("devices: 3", 1, "3 devices cannot share 2 stage(s)", "every device"),
    "too many stages": ("stages: 999999999", 1, "limit of 20,000,000", "lower"),
    "too many microbatches": ("slices: 1 x 999999999", 1, "limit of 20,000,000", "lower"),
    "too many slices": ("slices: 99999999 99999999", 1, "limit of 20,000,000", "lower"),
    "no microbatches": ("slices: 4 x 0", 1, "microbatches is 0", "1 or more"),
    "a fraction over zero": ("stage_share: 1 1/0", 1, "'1/0' is not a fraction", "1/4"),
    "a decimal fraction": ("stage_share: 0.5 1", 1, "'0.5' is not a fraction", "1/4"),
    "an exponent": ("stage_share: 1 1e999999999", 1, "is not a fraction", "1/4"),
    "a negative share": ("stage_share: 1 -1/2", 1, "'-1/2' is not a fraction", "1/4"),
    "too few shares": ("stage_share: 1", 1, "stage_share", "2 entries"),
    "a backward skip": ("skips: 1-0", 1, "skip edge 1-0", "later"),
    "half a skip": ("skips: 1", 1, "1 values instead of 2", "give 2"),
    "a strange loss": ("loss: Q", 1, "loss='Q' is not known", "F, S or T"),
    "a weightless stage outside": ("weightless: 2", 1, "weightless stage 2", "0 to 1"),
    "a lonely pair": ("pair: 0F0", 1, "a pair has 1 op instead of two", "two ops"),
    "a loan without a number": ("loan: 0F0 1F0", 1, "2 values instead of 3", "give 3"),
    "two ops in a gang": ("gang: 0F0 1F0", 1, "'0F0 1F0' is not an op", "for example"),
    "an unknown stream": ("0 compte: 0F0", 1, "stream 'compte'", "did you mean 'compute'?"),
    "a lane outside": ("2 compute: 0F0", 1, "outside the 2 devices", "from 0 to 1"),
    "an unknown kind": ("0 copy: 0F0 0X0", 1, "'0X0' is not an op", "kinds are F"),
    "a long number in an op": ("0 copy: 0F9999999999", 1, "is not an op", "for example"),
    "a null byte": ("0 copy: 0F0\0", 1, "'0F0\\x00' is not an op", "for example"),
    "a name with an escape": ("name: red \x1b[31m", 1, "cannot be printed", "printable"),
}


@each("case", REFUSALS)
def test_refused_with_line_message_and_hint(case: str) -> None:
    damage, line, message, hint = REFUSALS[case]
    key = damage.partition(":")[0]
    valid = ["devices: 2", "stages: 2", "slices: 1 x 2", "0 compute: 0F0"]
    rest = [line for line in valid if not line.startswith(f"{key}:")]
    with pytest.raises(FormatError) as refusal:
        text.loads("\n".join([damage, *rest]))
    assert refusal.value.line == line
    assert message in refusal.value.message
    assert hint in refusal.value.hint


@each(
    ("written", "place"),
    [
        ("  0 compute: 0F0  0Q0", (1, 19)),
        ("  0 cmpute: 0F0", (1, 5)),
        ("  7 compute: 0F0", (1, 3)),
        ("stage_share: 1 1 x", (1, 18)),
        ("slice_share: 1 1; ;1/2  ?", (1, 25)),
        ("boundary_bytes: 1 two", (1, 19)),
        ("skips: 0-1  0-x", (1, 13)),
        ("after: 0F0 0?1", (1, 12)),
        ("share: 0O0  half", (1, 13)),
        ("loan: 0F0 1F0 many", (1, 15)),
        ("copies:", (1, 7)),
        ("   what", (1, 4)),
    ],
)
def test_the_column_is_that_of_the_word_at_fault(written: str, place: tuple[int, int]) -> None:
    with pytest.raises(FormatError) as refusal:
        text.loads(f"{written}\ndevices: 3\nstages: 3\nslices: 2 2 2\n1 compute: 0F0\n")
    assert (refusal.value.line, refusal.value.column) == place


@pytest.mark.parametrize("key", ["devices", "stages", "slices"])
def test_a_missing_key_is_named(key: str) -> None:
    lines = [line for line in text.dumps(small()).split("\n") if not line.startswith(key)]
    with pytest.raises(FormatError, match=f"the key '{key}' is missing"):
        text.loads("\n".join(lines))


def test_a_lane_given_twice_is_refused_where_it_comes_again() -> None:
    with pytest.raises(FormatError, match="lane 0 compute is given twice") as refusal:
        text.loads(text.dumps(small("")) + "0 compute: 0F1\n")
    assert refusal.value.line == 6


def test_a_file_without_ops_is_refused() -> None:
    with pytest.raises(FormatError, match="needs at least one op"):
        text.loads("devices: 2\nstages: 2\nslices: 1 x 2\n0 compute:\n")
