"""Divisions of one cell have their copies in the same machine or in others."""

from penstock.core.kernel import compile_small_work
from penstock.estimate.price import estimate_step
from penstock.planner.problem import problem_from
from planner.problems import candidates_of, row


def test_gradients_are_added_up_over_the_links_of_their_own_division() -> None:
    """Two copies in a machine take less than four in two machines, of whose pipeline of one device
    the cell was asked first."""
    found = candidates_of(
        problem_from(
            row(
                model="llama3-8b",
                cluster="a100-80:16",
                tokens=2048,
                batch_tokens=16 * 2048,
                mesh="tensor=4,sequence=2,ring=1",
                shard="none",
                rows=1,
                recompute="none",
                offload="none",
                vocabulary="no",
                layers="even",
            )
        )
    )
    numbers = [n for n in range(len(found)) if found.layout(n).schedule == "1f1b"]
    with compile_small_work():
        ratios = {
            found.layout(n).pipeline: float(found.seconds[n])
            / estimate_step(found.layout(n)).seconds
            for n in numbers
        }
    assert ratios.keys() == {1, 2}
    assert 0.9 < min(ratios.values()) <= max(ratios.values()) <= 1 + 1e-9
