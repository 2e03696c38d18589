"""A run whose data policy is to be chosen: before its ranks start, and when they have.

The choice needs the lengths of documents, so the data is opened for it. A launcher does that before
it starts a rank, and the first rank finds its file; where ranks were started by somebody else, the
first one chooses and tells the others.
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import distributed

from penstock.data import GlobalBatches, SampleStream, open_data
from penstock.estimate.policies.choice import fastest_policy, gain_words, price_lines
from penstock.run.comm.collective import tell_all
from penstock.run.process.machine import PROCESS_BYTES, this_machine
from penstock.run.process.rendezvous import Connection
from penstock.run.watchdog.position import Tracker
from penstock.train.config.auto_plan import CHOSEN
from penstock.train.config.settings import Settings
from penstock.train.loop.auto_start import PlannedRun
from penstock.train.loop.before_start import on_host
from penstock.train.loop.chosen_policy import (
    POLICY_FILE,
    ChosenPolicy,
    asked_of,
    chosen_keys,
    kept_policy,
    policy_from,
    save_policy,
)
from penstock.train.loop.policy_prices import PolicyPrices
from penstock.train.loop.run_lock import claim_run
from penstock.train.loop.setup import architecture


def policy_before_start(settings: Settings, ranks: int, say: Callable[[str], None]) -> Settings:
    """The settings with a data policy for so many ranks; as they are where they have one."""
    if settings.data.policy != CHOSEN:
        return settings
    with claim_run(settings):
        kept, because = kept_policy(Path(settings.run.directory), asked_of(settings, ranks))
        if kept is None:
            say("data.policy: reads the documents, and simulates the first batches")
            kept = choose_policy(settings, ranks, ranks, because)
    return kept.applied_to(settings)


def policy_by_ranks(planned: PlannedRun, connection: Connection, tracker: Tracker) -> PlannedRun:
    """The same, on every rank of the run; what is to be said is said by the first."""
    settings = planned.settings
    if settings.data.policy != CHOSEN:
        return planned
    text = ""
    if connection.rank == 0:
        tracker.handles_files("chooses its data policy")
        place = connection.place
        kept, because = kept_policy(Path(settings.run.directory), asked_of(settings, place.world))
        chosen = kept or choose_policy(settings, place.world, place.local_world, because)
        text = chosen.text()
    world = distributed.group.WORLD if distributed.is_initialized() else None
    with tracker.gathers_files("hear of the data policy"):
        found = policy_from(json.loads(tell_all(text, world)), POLICY_FILE)
    return PlannedRun(found.applied_to(settings), [*planned.notes, *found.lines])


def choose_policy(settings: Settings, ranks: int, here: int, because: str) -> ChosenPolicy:
    """Compare the policies for so many ranks, of which some are on this machine, and keep the
    choice in the folder of the run."""
    model = architecture(settings)
    room = settings.plan.memory or _room(settings, here)
    samples = _samples(settings, model.vocabulary)
    found = PolicyPrices(settings, model, ranks, samples, room).all()
    prices = [each.price for each in found]
    best = fastest_policy(prices)
    chosen = next(each for each in found if each.price is best)
    policy = ChosenPolicy(
        asked_of(settings, ranks),
        chosen_keys(chosen.settings),
        gain_words(prices),
        [*price_lines(prices), rates_words(settings)],
        because,
    )
    save_policy(policy, Path(settings.run.directory))
    return policy


def rates_words(settings: Settings) -> str:
    """Whose times were compared."""
    if profile := settings.data.profile or settings.plan.profile:
        return f"times are by the rates of {profile}"
    return (
        "times are closed forms of an H200: compare them with each other, or give data.profile, a "
        "file of `penstock profile`, for those of this machine"
    )


def _samples(settings: Settings, vocabulary: int) -> SampleStream:
    """The samples of the run, of which a step takes as many as it will."""
    batch, cache = settings.batch, Path(settings.run.directory) / "data"
    data = open_data(settings.data, batch.length, vocabulary, settings.run.seed, cache)
    places = settings.mesh.replicas * batch.microbatches * batch.rows
    return GlobalBatches(data.train, places, batch.tokens).limited


def _room(settings: Settings, here: int) -> int:
    """Bytes that each rank may take: of the host what is free now, of a GPU what it has; 0 where
    that is not known."""
    if not on_host(settings):
        each = -(-here // max(1, torch.cuda.device_count()))
        return int(torch.cuda.get_device_properties(0).total_memory) // each
    free = this_machine().free
    return max(1, free // here - PROCESS_BYTES) if free else 0
