"""Configurations for the tests: a short one, and random ones with every key."""

from dataclasses import fields
from os.path import abspath
from typing import Any

from hypothesis import assume, settings
from hypothesis import strategies as st

from penstock.arch.mesh_shape import AXES, LARGEST_OF_MESH
from penstock.arch.presets import MODELS
from penstock.arch.rope_scaling import RopeScaling
from penstock.data.settings import DataSettings
from penstock.train.config.load import loads
from penstock.train.config.model_settings import ModelSettings
from penstock.train.config.plan_settings import PlanSettings
from penstock.train.config.sections import (
    BatchSettings,
    CheckpointSettings,
    EvaluationSettings,
    LogSettings,
    MeshSettings,
    OptimizerSettings,
    PipelineSettings,
    RunSettings,
    WatchSettings,
)
from penstock.train.config.settings import Settings

SHORT = '[pipeline]\nschedule = "gpipe"\n'
"""The shortest configuration: the one key without a default."""

usual = settings(deadline=None, max_examples=100)
"""No deadline: a busy machine is no defect of a parser."""


def short(*overrides: str) -> Settings:
    """The shortest configuration with changes."""
    return loads(SHORT, overrides)


counts = st.integers(1, 2**63 - 1)
sizes = st.integers(1, LARGEST_OF_MESH)
naturals = st.integers(0, 2**63 - 1)
positive = st.floats(0, exclude_min=True, allow_infinity=False)
shares = st.floats(0, 1, exclude_max=True)
texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)
names = texts.filter(bool)
rows = st.lists(st.integers(1, 9), min_size=1, max_size=5)


windows = st.none() | st.integers(1, 4096)


@st.composite
def models(draw: st.DrawFn) -> ModelSettings:
    if draw(st.booleans()):
        return ModelSettings(huggingface=draw(names))
    base = draw(st.sampled_from([model for model in MODELS.values() if model.element_bytes == 2]))
    scaling = RopeScaling("llama3", draw(st.floats(1, 64)), original_positions=8192)
    changes: dict[str, Any] = {
        "tied": draw(st.booleans()),
        "window": draw(windows) if base.subsampling is None else None,
        "rope_scaling": draw(st.sampled_from([None, scaling])),
        "rope_theta": draw(st.floats(1e-30, 1e12)),
    }
    # Not `vars`: it holds the cached properties too once another test has asked for them.
    numbers = {field.name: getattr(base, field.name) for field in fields(base)}
    for of_another_table in ("element_bytes", "lora"):
        del numbers[of_another_table]
    return ModelSettings(**{**numbers, **changes})


@st.composite
def pipelines(draw: st.DrawFn, cut: list[int]) -> PipelineSettings:
    recompute = draw(st.sampled_from(["none", "all"]) | st.lists(naturals, max_size=3).map(tuple))
    return PipelineSettings(
        schedule=draw(names),
        devices=draw(naturals),
        chunks=draw(naturals),
        slices=len(cut),
        cut=draw(st.sampled_from(["even", "equal-flops", tuple(cut)])),
        recompute=recompute,
        keep_slices=draw(naturals) if recompute == "all" else 0,
        options=draw(st.dictionaries(texts, naturals | positive | texts, max_size=3)),
    )


@st.composite
def policies(draw: st.DrawFn) -> PlanSettings:
    policy = draw(st.sampled_from(["fixed", "adaptive", "improving"]))
    return PlanSettings(
        policy=policy,
        every=draw(counts),
        gain=draw(shares),
        memory=draw(naturals),
        rows=(1,) if policy == "adaptive" else (),
        effort=draw(st.floats(0.1, 100)),
        orders=draw(texts) if policy == "improving" else "",
    )


@st.composite
def meshes(draw: st.DrawFn) -> MeshSettings:
    ring = draw(st.integers(1, 9))
    return MeshSettings(
        tensor=draw(sizes),
        sequence=ring * draw(st.integers(1, 9)),
        ring=ring,
        replicas=draw(sizes),
        norms=draw(st.sampled_from(["scattered", "replicated"])),
        shard=draw(st.sampled_from(["none", "optimizer", "full"])),
        order=tuple(draw(st.permutations(AXES))),
    )


@st.composite
def optimizers(draw: st.DrawFn, steps: int) -> OptimizerSettings:
    schedule = draw(st.sampled_from(["constant", "cosine", "wsd"] if steps else ["constant"]))
    decay = draw(st.integers(1, steps)) if schedule == "wsd" else 0
    return OptimizerSettings(
        learning_rate=draw(positive),
        betas=(draw(shares), draw(shares)),
        epsilon=draw(positive),
        schedule=schedule,
        warmup_steps=draw(st.integers(0, steps - decay)),
        decay_steps=decay,
        minimum_factor=draw(shares),
    )


@st.composite
def logs(draw: st.DrawFn) -> LogSettings:
    compare = tuple(draw(st.lists(names, max_size=2)))
    return LogSettings(
        every=draw(counts),
        tensorboard=draw(st.booleans()),
        wandb=draw(texts),
        report=draw(st.booleans()),
        compare=compare,
    )


@st.composite
def all_settings(draw: st.DrawFn) -> Settings:
    """Settings with every key drawn, such that they fit together."""
    steps, cut, beat = draw(counts), draw(rows), draw(st.floats(1e-3, 1e3))
    directory = draw(names.filter(lambda name: "\0" not in name))
    patience, frozen = (beat * draw(st.floats(2, 9)) for _ in range(2))
    watch = WatchSettings(patience=patience, frozen=frozen, heartbeat=beat)
    model, export = draw(models()), draw(texts)
    assume(not (model.huggingface and export) or abspath(model.huggingface) != abspath(export))
    return Settings(
        run=RunSettings(directory=directory, seed=draw(naturals), steps=steps, dtype="float64"),
        model=model,
        data=DataSettings("text", tuple(draw(st.lists(names, min_size=1))), held_out=draw(shares)),
        batch=BatchSettings(length=sum(cut), rows=draw(counts), microbatches=draw(counts)),
        pipeline=draw(pipelines(cut)),
        plan=draw(policies()),
        mesh=draw(meshes()),
        optimizer=draw(optimizers(steps)),
        evaluation=EvaluationSettings(batches=draw(counts)),
        checkpoint=CheckpointSettings(
            every=draw(naturals), keep=draw(counts), export=export, resume=draw(names)
        ),
        log=draw(logs()),
        watch=watch,
    )
