"""Policies are compared as a run with each of them would be: refusals, rules and times."""

import json
import random
from pathlib import Path

import pytest

from penstock.estimate.policies.choice import PolicyPrice
from penstock.plan.ragged_batch import SliceRule
from penstock.train.config.plan_settings import PlanSettings
from penstock.train.config.settings import Settings
from penstock.train.loop.auto_policy import _samples, rates_words
from penstock.train.loop.policy_prices import (
    CONTENDERS,
    PolicyPrices,
    PricedPolicy,
    with_policy,
)
from penstock.train.loop.setup import architecture, layout_of
from train.samples import short

pytestmark = pytest.mark.torch

LARGE = ("model.preset=tiny", "model.hidden=512", "model.ffn=1024", "model.layers=8")
AUTO = ("data.policy=auto", "pipeline.devices=2", "batch.length=4096", "batch.microbatches=4")
SLICES = "data.slice_tokens=512"
ANY_LENGTH = "pipeline.schedule=chunkflow-paced"


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short ones, and some of 4,096 tokens."""
    path = tmp_path_factory.mktemp("data") / "x.jsonl"
    draw = random.Random(0)
    lengths = [draw.choice((30, 60, 100, 400, 4096)) for _ in range(100)]
    path.write_text("".join(json.dumps({"text": "a" * length}) + "\n" for length in lengths))
    return path


def asked(documents: Path, tmp_path: Path, *changes: str) -> Settings:
    source = ("data.source=jsonl", f'data.paths=["{documents}"]', "data.packing=whole")
    return short(*LARGE, *AUTO, SLICES, *source, f"run.directory={tmp_path}", *changes)


def prices(settings: Settings, room: int = 0) -> dict[str, PricedPolicy]:
    model = architecture(settings)
    ranks = settings.mesh.shape.ranks(settings.pipeline.devices)
    samples = _samples(settings, model.vocabulary)
    found = PolicyPrices(settings, model, ranks, samples, room).all()
    return {each.price.policy: each for each in found}


def refusals(found: dict[str, PricedPolicy]) -> dict[str, str]:
    return {name: each.price.refusal for name, each in found.items() if each.price.refusal}


@pytest.mark.long
def test_a_schedule_for_any_lengths_on_ranks_that_share_tokens_can_run_all(
    documents: Path, tmp_path: Path
) -> None:
    found = prices(asked(documents, tmp_path, ANY_LENGTH, "mesh.sequence=2"))
    assert refusals(found) == {}
    assert all(each.price.seconds > 0 < each.price.memory for each in found.values())
    chunk = found["chunk"].settings
    options = chunk.pipeline.options
    assert chunk.data.slice_tokens == 512
    assert {*options} == {"retain", "warmup"}
    assert found["pack"].settings.pipeline.options == {"groups": "1,1,1,1"}
    for each in found.values():
        layout_of(each.settings, 4)  # what was chosen can be run


def test_what_cannot_be_run_is_left_out_with_its_reason(documents: Path, tmp_path: Path) -> None:
    found = refusals(prices(asked(documents, tmp_path, "pipeline.schedule=1f1b")))
    assert {*found} == {"chunk", "flex"}
    assert "1f1b has no order for sequences of unequal lengths" in found["chunk"]
    assert "mesh.sequence is 1" in found["flex"]
    rows = refusals(prices(asked(documents, tmp_path, ANY_LENGTH, "batch.rows=2")))
    assert "batch.rows is 2" in rows["chunk"]
    cut = ("pipeline.schedule=seq1f1b", "pipeline.slices=2", "mesh.sequence=2")
    sliced = refusals(prices(asked(documents, tmp_path, *cut)))
    assert "groups are compared by whole sequences, but a microbatch has 2" in sliced["flex"]


@pytest.mark.long
def test_groups_are_compared_in_the_way_that_is_named_and_with_replicas(
    documents: Path, tmp_path: Path
) -> None:
    """Groups of one size are no faster."""
    base = ("pipeline.schedule=1f1b", "mesh.sequence=4", "data.rank_tokens=2048")
    static, flexible, half = (
        prices(asked(documents, tmp_path, *base, change))["flex"]
        for change in ("data.groups=static", "data.groups=flexible", "mesh.replicas=2")
    )
    assert static.settings.data.groups == "static"
    assert flexible.price.seconds <= static.price.seconds
    assert not half.price.refusal
    assert prices(asked(documents, tmp_path, *base, "data.groups=static"))["pack"].price.seconds > 0


@pytest.mark.long
def test_slices_have_room_where_whole_sequences_have_none(documents: Path, tmp_path: Path) -> None:
    settings = asked(documents, tmp_path, ANY_LENGTH)
    free = prices(settings)
    room = free["pack"].price.memory - 1
    found = prices(settings, room)
    assert "a rank would need" in found["pack"].price.refusal
    assert 0 < found["chunk"].price.memory <= room
    assert "slices of" in found["chunk"].price.words


@pytest.mark.long
def test_steps_with_fewer_tokens_are_those_of_the_run(documents: Path, tmp_path: Path) -> None:
    """`batch.tokens` limits the batches that are looked at, too."""
    settings = asked(documents, tmp_path, ANY_LENGTH)
    fewer = asked(documents, tmp_path, ANY_LENGTH, "batch.tokens=4096")
    whole, limited = (prices(each)["chunk"].price.seconds for each in (settings, fewer))
    assert limited < whole


def test_keys_of_other_policies_are_not_kept() -> None:
    settings = short(
        *AUTO, ANY_LENGTH, "mesh.sequence=2", "data.slice_tokens=64", "data.rank_tokens=4096"
    )
    pack, chunk, flex = (with_policy(settings, name) for name in CONTENDERS)
    assert (pack.data.slice_tokens, pack.data.rank_tokens) == (0, 0)
    assert (chunk.data.slice_tokens, chunk.data.rank_tokens) == (64, 0)
    assert (flex.data.slice_tokens, flex.data.rank_tokens) == (0, 4096)
    ruled = with_policy(settings, "chunk", SliceRule(128, 2, 4))
    assert ruled.data.slice_tokens == 128
    assert ruled.pipeline.options == {"retain": 2, "warmup": 4}


def test_it_is_said_whose_times_are_compared() -> None:
    assert "closed forms of an H200" in rates_words(short(*AUTO))
    assert "data.profile" in rates_words(short(*AUTO))
    of_plan = short(*AUTO).model_copy(update={"plan": PlanSettings(profile="machine.json")})
    assert rates_words(of_plan) == "times are by the rates of machine.json"


def test_a_price_says_the_policy_that_it_is_of(documents: Path, tmp_path: Path) -> None:
    found = prices(asked(documents, tmp_path, "pipeline.schedule=1f1b"))
    assert [each.price.policy for each in found.values()] == ["pack", "chunk", "flex"]
    assert isinstance(found["pack"].price, PolicyPrice)
