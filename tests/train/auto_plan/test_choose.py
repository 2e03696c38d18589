"""Plans that are chosen for a configuration: what is given stays, what is left out is chosen."""

from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.errors import PenstockError
from penstock.train.auto_plan.agreed import changed_machine
from penstock.train.auto_plan.choose import choose_plan
from penstock.train.auto_plan.chosen_plan import PLAN_FILE, plan_differences, read_plan, save_plan
from penstock.train.auto_plan.request import PlanRequest
from penstock.train.config.load import loads
from penstock.train.loop.setup import architecture
from profiling.made_up import profile

pytestmark = pytest.mark.torch

AUTO = """
[plan]
auto = true
[run]
device = "cpu"
[batch]
length = 2048
microbatches = 8
"""


def request_of(*changes: str, ranks: int = 2) -> PlanRequest:
    settings = loads(AUTO, changes)
    return PlanRequest(settings, architecture(settings), ranks, "cpu")


def refusal(*changes: str) -> str:
    with pytest.raises(PenstockError) as caught:
        loads(AUTO, changes)
    return str(caught.value)


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    path = tmp_path / "made-up.json"
    path.write_text(dumps(profile()))
    return path


def test_keys_that_are_given_are_decided_and_the_batch_is_kept() -> None:
    open_request = request_of()
    assert (open_request.axes, open_request.decided) == ({}, {})
    request = request_of(
        *("mesh.replicas=2", "pipeline.slices=4", "pipeline.vocabulary=ends", "batch.rows=1"),
        *("pipeline.schedule=seq1f1b", "pipeline.recompute=all", "mesh.shard=none"),
    )
    assert request.axes == {"replicas": 2}
    decided = request.decided
    assert decided.pop("recompute").whole_stages
    assert decided == {
        "schedule": "seq1f1b",
        "slices": 4,
        "vocabulary": False,
        "rows": 1,
        "shard": "none",
    }
    assert (open_request.sequences, request.sequences) == (8, 16)


def test_who_named_a_profile_of_another_machine_is_told_so(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of the first start was not chosen elsewhere."""
    here = {"device": "this one", "cores": 2}
    monkeypatch.setattr("penstock.train.auto_plan.agreed.made_on", lambda device: here)
    named = choose_plan(request_of(f"plan.profile={measured}"), measured)
    said = {
        plan.asked["profile"]: changed_machine(plan, tmp_path, torch.device("cpu"))
        for plan in (named, replace(named, asked=request_of().record()))
    }
    assert (
        f"{measured} is a profile of another machine: device was none and is this one"
        in said[str(measured)][0]
    )
    assert "without plan.profile this machine is measured" in said[str(measured)][0]
    assert "the plan was chosen on another machine" in said[""][0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "devices", "rest"),
    [
        (("pipeline.devices=2", "mesh.shard=none"), 2, {"tensor": 1, "shard": "none"}),
        (("mesh.tensor=2",), 1, {"tensor": 2, "replicas": 1}),
        (("mesh.replicas=2",), 1, {"tensor": 1, "replicas": 2}),
    ],
)
def test_a_plan_has_what_was_given(
    measured: Path, changes: tuple[str, ...], devices: int, rest: dict[str, Any]
) -> None:
    request = request_of(*changes)
    plan = choose_plan(request, measured)
    assert plan.keys["pipeline"]["devices"] == devices
    assert rest.items() <= plan.keys["mesh"].items()
    settings = plan.applied_to(request.settings)
    batch = settings.batch
    assert batch.rows * batch.microbatches * settings.mesh.replicas == request.sequences
    assert settings.mesh.shape.ranks(settings.pipeline.devices) == 2


def test_a_chosen_plan_is_a_configuration_that_one_could_have_written(measured: Path) -> None:
    request = request_of(
        *("pipeline.devices=2", "pipeline.schedule=1f1b", "pipeline.vocabulary=ends"),
        *("batch.rows=2", "batch.microbatches=4"),
    )
    settings = choose_plan(request, measured).applied_to(request.settings)
    by_hand = """
[run]
device = "cpu"
[batch]
length = 2048
rows = 2
microbatches = 4
[pipeline]
schedule = "1f1b"
devices = 2
"""
    assert settings == loads(by_hand, [f"plan.profile={measured}"])


def test_layers_that_are_given_are_those_of_the_plan(measured: Path) -> None:
    request = request_of("pipeline.devices=2", "pipeline.layers=[3, 1]")
    assert request.decided == {"layers": (3, 1)}
    plan = choose_plan(request, measured)
    assert plan.keys["pipeline"]["layers"] == [3, 1]
    assert plan.applied_to(request.settings).pipeline.layers == (3, 1)


@pytest.mark.long
def test_a_plan_is_kept_as_it_was_written(measured: Path, tmp_path: Path) -> None:
    assert read_plan(tmp_path) is None
    plan = choose_plan(request_of(), measured)
    save_plan(plan, tmp_path)
    assert read_plan(tmp_path) == plan
    assert plan_differences(plan.asked, request_of().record()) == []
    assert plan_differences(plan.asked, request_of(ranks=4).record()) == ["ranks was 2 and is 4"]
    (changed,) = plan_differences(plan.asked, request_of("mesh.tensor=2").record())
    assert changed == "decided was nothing and is {'tensor': '2'}"


@pytest.mark.parametrize("text", ["{}", '{"format": "penstock chosen plan", "version": 1}'])
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / PLAN_FILE).write_text(text)
    with pytest.raises(PenstockError, match=r"hint: delete .*plan\.json"):
        read_plan(tmp_path)


@pytest.mark.parametrize(
    ("changes", "ranks", "said"),
    [
        (("mesh.tensor=2",), 3, "plan.auto: 3 ranks cannot be divided by tensor=2"),
        (("mesh.replicas=2",), 3, "plan.auto: 3 ranks cannot be divided by replicas=2"),
        (("pipeline.schedule=1f1b", "pipeline.slices=2"), 2, "plan.auto: 1f1b does not cut"),
    ],
)
def test_what_cannot_be_is_refused_with_a_hint(
    measured: Path, changes: tuple[str, ...], ranks: int, said: str
) -> None:
    with pytest.raises(PenstockError, match="hint: ") as caught:
        choose_plan(request_of(*changes, ranks=ranks), measured)
    assert str(caught.value).startswith(said)
    assert "--" not in str(caught.value)


def test_too_little_memory_is_refused_with_what_lacks(measured: Path, monkeypatch: Any) -> None:
    from penstock.train.auto_plan import choose

    monkeypatch.setattr(choose, "_room", lambda request, measured: 2**16)
    with pytest.raises(PenstockError, match=r"no plan fits into .* the leanest lacks 0\.0"):
        choose_plan(request_of(), measured)


def test_a_profile_of_other_numbers_is_refused(measured: Path) -> None:
    with pytest.raises(PenstockError, match="profile again with --precision bf16"):
        choose_plan(request_of("run.dtype=bfloat16"), measured)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("plan.policy=adaptive", "auto is true, but policy is 'adaptive'"),
        ("run.dtype=float64", "run.dtype is 'float64', which is not profiled"),
        ("pipeline.schedule=./order.txt", "is the file './order.txt', whose sizes are fixed"),
        ("pipeline.options={admit=2}", "pipeline.options are given for no schedule"),
        ("pipeline.cut=even", "pipeline.cut is given"),
        ("pipeline.recompute=[0]", "pipeline.recompute names some stages"),
        ("pipeline.offload=[0]", "pipeline.offload names some stages"),
        ("mesh.shard_ranks=2", "mesh.shard_ranks is given"),
        ("optimizer.host_stages=deep", "optimizer.host_stages is given"),
        ("plan.auto=false", "[pipeline] has no schedule"),
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(change: str, said: str) -> None:
    assert said in refusal(change)
    assert "\nhint: " in refusal(change)


def test_a_schedule_is_left_open_only_where_it_is_chosen() -> None:
    assert loads(AUTO) == loads(AUTO, ["pipeline.schedule=auto"])
    assert "plan.auto is false" in refusal("plan.auto=false", "pipeline.schedule=auto")


def test_several_threads_on_the_host_are_refused() -> None:
    with pytest.raises(PenstockError, match=r"run\.threads is 2"):
        request_of("run.threads=2")
    settings = loads(AUTO, ["run.threads=2"])
    assert PlanRequest(settings, architecture(settings), 2, "cuda").ranks == 2
    assert replace(request_of(), ranks=3).record()["ranks"] == 3
