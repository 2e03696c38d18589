from penstock.schedules.generators.lane import LaneDraft


def words(lane: LaneDraft) -> str:
    return " ".join(f"{stage}{kind}{mb}" for kind, stage, mb, _ in lane.items)


def test_microbatches_are_counted_for_each_stage() -> None:
    lane = LaneDraft()
    lane.run("FF", 0)
    lane.run("F", 7)
    lane.run("F", 0)
    assert words(lane) == "0F0 0F1 7F0 0F2"


def test_full_and_split_backwards_share_their_count() -> None:
    lane = LaneDraft()
    lane.run("BIB", 2)
    assert words(lane) == "2B0 2I1 2B2"


def test_a_weight_gradient_is_the_oldest_due_of_its_stage() -> None:
    lane = LaneDraft()
    lane.run("I", 0)
    lane.run("II", 7)
    lane.run("WW", 7)
    assert words(lane) == "0I0 7I0 7I1 7W0 7W1"


def test_what_is_not_due_is_not_run() -> None:
    lane = LaneDraft()
    lane.run("BW", 0)
    lane.run_oldest()
    lane.run_all(0)
    assert words(lane) == "0B0"


def test_the_oldest_is_taken_across_stages_and_all_of_a_stage_at_once() -> None:
    lane = LaneDraft()
    for stage in (7, 0, 7, 0):
        lane.run("I", stage)
    lane.run_oldest()
    lane.run_all(0)
    lane.run_oldest()
    assert words(lane) == "7I0 0I0 7I1 0I1 7W0 0W0 0W1 7W1"


def test_a_braid_is_one_item_of_two_ops() -> None:
    lane = LaneDraft()
    lane.run("F", 0)
    lane.braid(forward=0, backward=7)
    assert lane.items[1] == (("F", 0, 1, 0), ("B", 7, 0, 0))
