from schedules.picture import built, lanes, picture, priced


def test_all_forwards_run_before_all_backwards() -> None:
    assert lanes(built("gpipe", p=2, m=3)) == picture("""
        0 F0 F1 F2 B0 B1 B2
        1 F0 F1 F2 B0 B1 B2
    """)


def test_the_bubble_is_that_of_p_minus_1_microbatches_and_the_whole_batch_is_alive() -> None:
    timeline = priced(built("gpipe", p=4, m=8))
    assert timeline.makespan == 33
    assert timeline.peak == (8, 8, 8, 8)
