"""How far a step may go before the updates of the step before are confirmed."""

from penstock.core.begun import begun_rows, first_forwards
from penstock.core.schedule import Schedule
from penstock.run.program.step_end import end_step_early
from penstock.schedules import build


def begun(schedule: Schedule) -> list[str]:
    """The ops of each device that may begin, as text."""
    table, free = schedule.table, first_forwards(schedule)
    devices = range(schedule.shape.devices)
    return [
        " ".join(str(table.op(row)) for row in (free & (table.device == device)).nonzero()[0])
        for device in devices
    ]


def test_forwards_begin_up_to_the_first_backward() -> None:
    assert begun(build("1f1b", devices=3, microbatches=4)) == ["0F0 0F1 0F2", "1F0 1F1", "2F0"]


def test_a_later_stage_of_a_device_begins_where_all_before_it_do() -> None:
    found = begun(build("interleaved", devices=2, microbatches=4, chunks=2))
    assert found == ["0F0 0F1 2F0 2F1 0F2", "1F0 1F1 3F0"]


def test_passes_over_the_vocabulary_do_not_begin() -> None:
    assert begun(build("vocab-1f1b", devices=2, microbatches=4)) == ["", ""]


def test_the_confirmations_stand_where_nothing_more_may_begin() -> None:
    schedule = build("zb-v", devices=2, microbatches=4)
    ended = end_step_early(schedule, reduced=False)
    assert begun_rows(ended).sum() == first_forwards(schedule).sum()
    for device in range(2):
        lane = ended.lane(device)
        checks = [number for number, op in enumerate(lane) if op.kind == "C"]
        assert [lane[number].stage for number in checks] == [device, 3 - device]
        assert checks[1] == checks[0] + 1
        assert lane[checks[1] + 1].kind != "F"
