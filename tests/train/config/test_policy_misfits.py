import pytest

from loops import each_case
from penstock.errors import PenstockError
from train.samples import short

CHUNK = ("data.policy=chunk", "pipeline.schedule=chunkflow", "batch.length=64")


def test_a_policy_with_slices_of_its_own_is_read() -> None:
    settings = short(*CHUNK, "data.slice_tokens=16", "pipeline.options.retain=2")
    assert (settings.data.policy, settings.data.slice_tokens) == ("chunk", 16)


@each_case(
    ("change", "said"),
    [
        ("batch.rows=2", "batch.rows is 2"),
        ("pipeline.slices=2", "pipeline.slices is 2"),
        ("pipeline.cut=even", "pipeline.cut is 'even'"),
        ("plan.auto=true", "plan.auto is True"),
        ("plan.policy=adaptive", "plan.policy is 'adaptive'"),
        ('log.compare=["1f1b"]', "log.compare is ('1f1b',)"),
        ("pipeline.options.groups=1,2", "pipeline.options gives groups"),
        ("data.slice_tokens=65", "data.slice_tokens is 65, but batch.length is 64"),
        ("data.slice_tokens=-1", "data.slice_tokens is -1"),
        ("data.policy=chonk", "data.policy is 'chonk'"),
    ],
)
def test_what_a_batch_decides_by_itself_is_not_given(change: str, said: str) -> None:
    with pytest.raises(PenstockError) as refusal:
        short(*CHUNK, change)
    assert said in refusal.value.message
    assert refusal.value.hint


def test_a_size_of_slices_without_the_policy_is_refused() -> None:
    with pytest.raises(PenstockError, match=r"data\.policy is 'pack'"):
        short("data.slice_tokens=16")
