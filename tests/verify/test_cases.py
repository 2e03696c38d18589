"""Each schedule meets each variant once, and no schedule has to be named for it."""

from dataclasses import replace

import pytest

from penstock.arch.parameters import HEAD
from penstock.check import check
from penstock.core.loans import helps_of
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules import Case, Need, Spec, find, registry
from penstock.verify.cases import half, one_process, smallest, trials_by_name, trials_of
from penstock.verify.trial import trial_plan
from penstock.verify.variants import VARIANTS, Trial

pytestmark = [pytest.mark.torch, pytest.mark.long]


def _trials(spec: Spec) -> dict[str, Trial]:
    trials, _ = trials_by_name(spec)
    return {trial.variant: trial for trial in trials}


@pytest.fixture(scope="module")
def everything() -> dict[str, dict[str, Trial]]:
    """Of the schedules that can be run."""
    found = {name: _trials(spec) for name, spec in registry().items()}
    return {name: trials for name, trials in found.items() if trials}


def _helped_or_offloaded(trials: dict[str, Trial]) -> bool:
    """Whether devices of a schedule of half the depth help each other, or offload."""
    schedule = trials["ulysses"].schedule
    return bool(helps_of(schedule)) or "O" in schedule.table.kinds


def test_every_schedule_meets_every_variant_once(
    everything: dict[str, dict[str, Trial]],
) -> None:
    missed = {
        (name, variant.name)
        for name, trials in everything.items()
        for variant in VARIANTS
        if variant.name not in trials
    }
    # Keys that go round cannot be lent, nor shared by a gang, whose weights are not gathered;
    # activations that are offloaded cannot be run again; a stage between two attentions is of one
    # layer; groups of ranks keep their activations on the device, and attention to themselves.
    loans = {(name, "ring") for name in ("slimpipe-exchange", "slimpipe-level", "sppo-msp")}
    offloaded = {(name, "recompute") for name in ("po-h", "po-f", "sppo", "stp-offload")}
    whole = {(name, "groups") for name in everything if _helped_or_offloaded(everything[name])}
    assert ("sppo", "groups") in whole
    assert ("seq1f1b", "groups") not in whole
    assert missed == loans | offloaded | whole | {("helixpipe", "layers"), ("sppo-msp", "full")}


def test_what_is_not_run_as_it_stands_is_said_by_name() -> None:
    said = {name: trials_by_name(spec)[1] for name, spec in registry().items()}
    assert said["seq1f1b"] == said["vocab-1f1b"] == []
    assert all(": left out" in note for note in said["po-h"])
    refused = [name for name, notes in said.items() if any("not run" in note for note in notes)]
    assert refused == []
    assert said["stp"] == []
    assert [note for note in said["slimpipe-exchange"] if "groups" not in note] == [
        "note: slimpipe-exchange ring: left out, slimpipe-exchange lends attention work, but the "
        "keys that 1F0.3 lends are on 2 ranks that pass them round"
    ]


def test_all_of_them_run_on_the_same_four_processes(
    everything: dict[str, dict[str, Trial]],
) -> None:
    counts = {t.processes for trials in everything.values() for t in trials.values()}
    assert counts == {4}


def test_the_oracle_has_few_answers_to_work_out(everything: dict[str, dict[str, Trial]]) -> None:
    works = {trial.work for trials in everything.values() for trial in trials.values()}
    # Schedules that need other numbers of microbatches than most have answers of their own.
    assert len(works) <= 2 * len(VARIANTS)


def test_every_trial_is_proven_and_covers_every_layer_and_every_token(
    everything: dict[str, dict[str, Trial]],
) -> None:
    for trials in everything.values():
        for trial in trials.values():
            shape = trial.schedule.shape
            assert check(trial.schedule).proven
            plan = trial_plan(trial)
            layout = plan.layout
            stages = [stage for stage, home in enumerate(layout.homes) if home is not None]
            held = [name for stage in stages for name in layout.parameters(stage).parts]
            shards = range(shape.stages, shape.homes)
            dealt = {name for shard in shards for name in layout.parameters(shard).parts}
            assert {*held, *dealt} - {HEAD} == {*layout.names} - {HEAD}
            assert len(held) == len({*held})
            assert tuple(map(len, trial.lengths)) == shape.slices
            batch = trial.work.batch
            wanted = batch.lengths or (batch.length,) * batch.microbatches
            assert tuple(map(sum, trial.lengths)) * trial.replicas == wanted


def test_variants_do_what_they_say(everything: dict[str, dict[str, Trial]]) -> None:
    for name, trials in everything.items():
        assert trials["tied"].work.model.tied
        assert name == "helixpipe" or len(set(trials["layers"].layers)) > 1
        assert len(set(trials["ragged"].lengths)) > 1
        sliced = [lengths for lengths in trials["ragged"].lengths if len(lengths) > 1]
        assert min(len(set(lengths)) for lengths in sliced) > 1
        assert len(set(trials["labels"].work.batch.ignored)) > 1
        assert max(map(len, trials["documents"].work.batch.documents)) > 1
        assert trials["replicas"].replicas == 2
        again = trials.get("recompute")
        assert again is None or {"N", "R"} <= again.schedule.table.kinds
        assert trials["float32"].dtype == "float32"


def test_documents_cross_the_ends_of_slices(everything: dict[str, dict[str, Trial]]) -> None:
    for trials in everything.values():
        trial = trials["documents"]
        ends = {sum(trial.lengths[0][:count]) for count in range(1, len(trial.lengths[0]))}
        starts = {start for row in trial.work.batch.documents for start in row}
        assert not ends or ends - starts


def test_a_schedule_that_is_registered_tomorrow_is_covered() -> None:
    odd = Need(lambda case: case.m % 2 == 1 and case.k % 3 == 0, "m is odd and 3 divides k", "")
    spec = replace(find("seq1f1b"), name="tomorrow", needs=(odd,))
    assert smallest(spec) == Case(4, 3, k=3)
    trials = _trials(spec)
    assert trials["replicas"].schedule.shape == Shape.even(2, 1, 1, 3)
    assert set(trials) == {variant.name for variant in VARIANTS}


def test_a_schedule_that_accepts_nothing_is_an_error() -> None:
    never = Need(lambda case: False, "nothing", "")
    with pytest.raises(ShapeError, match="tomorrow accepts none"):
        smallest(replace(find("gpipe"), name="tomorrow", needs=(never,)))


def test_half_of_an_odd_number_of_devices_is_none() -> None:
    spec = find("gpipe")
    assert half(spec, spec.case(3, 6), {}) is None
    trials, notes = trials_of(spec.build(spec.case(3, 6)), None)
    halved = [variant.name for variant in VARIANTS if variant.halved]
    assert halved == ["replicas", "shard", "full", "tensor", "ulysses", "groups", "ring"]
    assert not {*halved} & {trial.variant for trial in trials}
    assert [note.split(":")[1].split()[1] for note in notes] == halved


def test_half_keeps_what_was_asked_for() -> None:
    spec = find("slimpipe")
    case = half(spec, spec.case(4, 6, 2, 8, {"slack": 1}), {"slack": "1"})
    assert case is not None
    assert (case.p, case.m, case.v, case.k, case.options["slack"]) == (2, 3, 2, 8, 1)


def test_one_process_does_the_same_slices_in_ascending_order() -> None:
    trial = one_process(_trials(find("seq1f1b"))["ragged"])
    assert trial.processes == 1
    assert trial.layers == (trial.work.model.layers,)
    assert check(trial.schedule).accumulation == "ascending"
    assert trial.bitwise


def test_bits_are_claimed_only_where_gradients_are_added_in_one_order() -> None:
    trials = _trials(find("terapipe"))
    assert not any(trial.bitwise for trial in trials.values())
    claimed = {name for name, trial in _trials(find("zb-h1")).items() if trial.bitwise}
    assert claimed == {variant.name for variant in VARIANTS if not variant.halved}


def test_a_backward_between_an_input_and_a_weight_gradient_changes_the_order() -> None:
    lane = [("F", 0, 0, 0), ("F", 0, 1, 0), ("I", 0, 0, 0), ("B", 0, 1, 0), ("W", 0, 0, 0)]
    schedule = Schedule.of("torn", Shape(1, 1, (1, 1)), [lane])
    trials, _ = trials_of(schedule, None)
    assert check(schedule).proven
    assert not any(trial.bitwise for trial in trials)
