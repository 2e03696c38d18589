"""A chosen policy is kept in the folder of its run as long as what it follows from stays."""

import json
from pathlib import Path

import pytest

from penstock.errors import FormatError
from penstock.train.config.settings import Settings
from penstock.train.loop.chosen_policy import (
    POLICY_FILE,
    ChosenPolicy,
    asked_of,
    chosen_keys,
    kept_policy,
    save_policy,
)
from penstock.train.loop.policy_prices import with_policy
from train.samples import short

pytestmark = pytest.mark.torch


def settings(*changes: str) -> Settings:
    return short("data.policy=auto", "pipeline.schedule=chunkflow", *changes)


def chosen(given: Settings) -> ChosenPolicy:
    keys = chosen_keys(with_policy(given, "pack"))
    return ChosenPolicy(asked_of(given, 2), keys, "pack: 1 s", ["pack: 1 s"])


def test_a_choice_is_written_into_the_settings() -> None:
    given = settings("data.slice_tokens=64")
    found = chosen(given).applied_to(given)
    assert found.data.policy == "pack"
    assert found.data.slice_tokens == 0
    assert found.pipeline.options == {"groups": "1,1,1,1"}
    assert found.model_copy(update={"data": given.data, "pipeline": given.pipeline}) == given


def test_a_choice_is_kept_and_given_up_where_something_has_changed(tmp_path: Path) -> None:
    given = settings()
    assert kept_policy(tmp_path, asked_of(given, 2)) == (None, "")
    save_policy(chosen(given), tmp_path)
    assert kept_policy(tmp_path, asked_of(given, 2)) == (chosen(given), "")
    found, because = kept_policy(tmp_path, asked_of(settings("batch.microbatches=8"), 4))
    assert found is None
    assert because == "ranks was 2 and is 4, batch.microbatches was 4 and is 8"


def test_a_file_that_is_none_is_refused_with_what_to_do(tmp_path: Path) -> None:
    given = settings()
    record = json.loads(chosen(given).text())
    for broken in (
        {},
        {**record, "version": 0},
        {**record, "keys": {"run": {"steps": 1}}},
        {key: value for key, value in record.items() if key != "why"},
    ):
        (tmp_path / POLICY_FILE).write_text(json.dumps(broken))
        with pytest.raises(FormatError) as refusal:
            kept_policy(tmp_path, asked_of(given, 2))
        assert "chosen again" in refusal.value.hint
    spoilt = ChosenPolicy({}, {"data": {"policy": "none"}}, "", [])
    with pytest.raises(FormatError, match="does not fit the configuration"):
        spoilt.applied_to(given)
