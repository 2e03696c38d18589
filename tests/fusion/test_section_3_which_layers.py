"""FFN Fusion, section 3 and the examples of section 5: which layers are fused, which windows could
run side by side, and which attentions go."""

from itertools import product

import numpy as np
import pytest

from penstock.errors import ShapeError
from penstock.fusion.alternatives import Alternative, choose
from penstock.fusion.selection import fusable_runs, low_runs, parallel_windows

TOY = [True, False, False, False, False, *[True] * 7]
"""A F F F F A ..., of 12 blocks."""


def test_section_5_a_run_of_four_mlps_is_fused_without_its_last() -> None:
    """Counted from 1: low between blocks 2 to 5, so 2 to 4 are fused and 5 is kept."""
    assert low_runs(np.zeros((12, 12)), TOY, 0.1) == [range(1, 5)]
    assert fusable_runs(np.zeros((12, 12)), TOY, 0.1) == [range(1, 4)]


def test_a_high_dependency_ends_a_run() -> None:
    matrix = np.zeros((12, 12))
    matrix[2, 4] = 0.5
    assert low_runs(matrix, TOY, 0.1) == [range(1, 4)]
    assert fusable_runs(matrix, TOY, 0.1) == [range(1, 3)]
    assert fusable_runs(matrix, TOY, 0.5) == [range(1, 4)]


def test_what_a_block_in_front_does_to_one_behind_is_looked_at_alone() -> None:
    matrix = np.tril(np.ones((12, 12)))
    assert fusable_runs(matrix, TOY, 0.1) == [range(1, 4)]


def test_a_run_of_the_253b_model_is_cut_by_memory() -> None:
    """Blocks 66 to 115 have no attention; 115 is left, and 49 blocks are cut into equal ones here,
    since widths are equal."""
    attends, widths = [*[True] * 66, *[False] * 50, *[True] * 46], [100] * 162
    runs = fusable_runs(np.zeros((162, 162)), attends, 0.1, widths, 1500)
    assert runs == [range(66, 81), range(81, 96), range(96, 111), range(111, 115)]
    wide = [100 if layer < 100 else 700 for layer in range(162)]
    cut = fusable_runs(np.zeros((162, 162)), attends, 0.1, wide, 1500)
    assert cut[-1] == range(113, 115)
    assert all(sum(wide[own.start : own.stop]) <= 1500 for own in cut)


def test_mlps_that_are_left_alone_are_not_fused() -> None:
    assert fusable_runs(np.zeros((4, 4)), [True, False, False, True], 0.1) == []
    widths = [9, 9, 9, 9, 9]
    assert fusable_runs(np.zeros((5, 5)), [False] * 5, 0.1, widths, 10) == []


def test_section_5_windows_of_an_8_by_8_matrix() -> None:
    matrix = np.zeros((8, 8))
    matrix[3, 4] = 0.5
    assert parallel_windows(matrix, [True] * 8) == [range(4), range(4, 8)]
    assert parallel_windows(matrix, [True] * 8, count=1) == [range(4)]


def test_windows_have_whole_blocks_alone_and_do_not_overlap() -> None:
    attends = [True] * 5 + [False] + [True] * 4
    matrix = np.zeros((10, 10))
    matrix[0, 1] = 0.2
    assert parallel_windows(matrix, attends) == [range(1, 5), range(6, 10)]


def brute_force(library: list[list[Alternative]], budgets: tuple[float, ...]) -> float:
    scores = [
        sum(each.score for each in chosen)
        for chosen in product(*library)
        if all(sum(each.costs[at] for each in chosen) <= most for at, most in enumerate(budgets))
    ]
    return min(scores, default=float("inf"))


def test_the_choice_of_alternatives_is_exact() -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        library = [
            [
                Alternative("kept", 0.0, (1.0, 2.0)),
                Alternative("fewer", float(random.random()), (0.5, 1.0)),
                Alternative("gone", float(random.random() * 2), (0.0, float(random.integers(2)))),
            ]
            for _ in range(6)
        ]
        budgets = (float(random.integers(2, 6)), 8.0)
        chosen = choose(library, budgets)
        assert sum(each.score for each in chosen) == brute_force(library, budgets)
        for at, most in enumerate(budgets):
            assert sum(each.costs[at] for each in chosen) <= most


def test_an_alternative_may_stand_for_several_blocks() -> None:
    kept, both = Alternative("kept", 0.0, (2.0,)), Alternative("both", 0.1, (1.0,), blocks=2)
    library = [[kept], [kept, both], [kept], [kept]]
    assert [each.name for each in choose(library, (7.0,))] == ["kept", "both", "kept"]
    assert [each.name for each in choose(library, (8.0,))] == ["kept"] * 4


def test_budgets_that_nothing_fits_are_refused() -> None:
    with pytest.raises(ShapeError, match="no choice of alternatives for 1 blocks"):
        choose([[Alternative("kept", 0.0, (1.0,))]], (0.5,))
    with pytest.raises(ShapeError, match="both at block 0 of 1 stands for 2 blocks"):
        choose([[Alternative("both", 0.0, (1.0,), blocks=2)]], (1.0,))
