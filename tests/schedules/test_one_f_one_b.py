import pytest

from schedules.picture import bubble, built, lane, picture, priced


def test_section_7_the_first_device_warms_up_and_the_last_one_alternates_at_once() -> None:
    schedule = built("1f1b", p=4, m=8)
    first, last = picture("""
        0 F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7
        3 F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7
    """)
    assert lane(schedule, 0) == first
    assert lane(schedule, 3) == last


def test_section_8_time_and_memory_of_the_usual_example() -> None:
    timeline = priced(built("1f1b", p=4, m=8))
    assert timeline.makespan == 33
    assert timeline.makespan - timeline.work[0] == 9
    assert timeline.peak == (4, 3, 2, 1)


def test_fewer_microbatches_than_devices_still_pay_the_whole_bubble() -> None:
    assert priced(built("1f1b", p=4, m=2)).makespan == 15


@pytest.mark.parametrize(
    ("p", "times", "idle"), [(4, (10, 11, 8), 87), (8, (10, 11, 8), 203), (8, (3, 4, 2), 63)]
)
def test_the_bubble_is_p_minus_1_steps_at_any_times(
    p: int, times: tuple[int, int, int], idle: int
) -> None:
    assert bubble(priced(built("1f1b", p=p, m=2 * p), times)) == idle
