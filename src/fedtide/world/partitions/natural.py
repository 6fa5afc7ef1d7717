"""Every client holds the samples it made."""

from dataclasses import replace
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.dataset import Samples
from fedtide.world.partitions.base import Dealt, Partition
from fedtide.world.timeline import HeldOut, Timeline


class Natural(Partition):
    """Every client holds its own samples; for datasets with client IDs.

    Clients are numbered by the time of their first training sample, or by their order in the data where times are unknown, so
    that later samples change no number. Those with fewer than ``min_samples`` training samples are left out.
    """

    class Settings(PluginSettings):
        name: str = "natural"
        min_samples: int = Field(1, ge=1, description="training samples required of a client of the population")
        max_clients: int | None = Field(None, ge=1, description="size of the population; null: all clients")
        choice: Literal["random", "largest"] = Field(
            "random",
            description="selection if there are more than max_clients: sampled with the world seed, or the largest",
        )
        test_on: Literal["all", "present"] = Field(
            "all", description="held-out samples to evaluate on: all of the round's, or those of the clients present"
        )

        @model_validator(mode="after")
        def _consistent(self) -> Self:
            if self.choice == "largest" and self.max_clients is None:
                raise SettingsError("choice = 'largest' has no effect without max_clients")
            return self

    settings: Settings
    needs_classes = False

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        """Not possible from labels alone; see :meth:`assign`."""
        raise SettingsError(
            "partition natural keeps the data's clients and is not supported with this scenario, "
            "which assigns samples by label; use another partition"
        )

    def assign(self, samples: Samples, num_clients: int | None, num_classes: int, seed: int, group: int = 0) -> Dealt:
        """See :meth:`Partition.assign`; all clients of the data that qualify."""
        if samples.client is None:
            raise SettingsError("partition natural requires a dataset with client IDs; use another partition")
        ids, sizes = np.unique(samples.client, return_counts=True)
        chosen = self.settings
        kept = np.flatnonzero(sizes >= chosen.min_samples)
        if len(kept) == 0:
            raise SettingsError(
                f"partition.min_samples = {chosen.min_samples}: no client has that many; the largest has {sizes.max()}"
            )
        if chosen.max_clients is not None and len(kept) > chosen.max_clients:
            rank = (
                -sizes[kept] if chosen.choice == "largest" else generator(seed, "partition.natural").random(len(kept))
            )
            kept = np.sort(kept[np.argsort(rank, kind="stable")[: chosen.max_clients]])
        if samples.time is not None:
            began = np.full(int(ids[-1]) + 1, np.iinfo(np.int64).max)
            np.minimum.at(began, samples.client, samples.time)
            kept = kept[np.argsort(began[ids[kept]], kind="stable")]
        if num_clients is not None and num_clients != len(kept):
            raise SettingsError(
                f"scenario.num_clients = {num_clients}: partition natural has {len(kept)} clients; use null"
            )
        order = np.argsort(samples.client, kind="stable")
        cut = np.cumsum(sizes)
        shards = [np.sort(order[cut[place] - sizes[place] : cut[place]]) for place in kept]
        left_out = {"clients": len(ids) - len(kept), "samples": int(sizes.sum() - sizes[kept].sum())}
        return Dealt(shards, ids[kept], {"left_out": left_out})

    def evaluated(self, timeline: Timeline, train: Samples, test: Samples) -> Timeline:
        if self.settings.test_on == "all":
            return timeline
        if test.client is None:
            raise SettingsError("partition.test_on = 'present' requires test samples with client IDs; use 'all'")
        return _on_present(timeline, train, test)


def _on_present(timeline: Timeline, train: Samples, test: Samples) -> Timeline:
    """The timeline with every round evaluated on those of its held-out samples that belong to clients present."""
    if not len(timeline.origin_of_client):
        raise SettingsError(
            "partition.test_on = 'present': the scenario does not keep the clients of the data; use 'all'"
        )
    everything = HeldOut(np.arange(len(test), dtype=np.int64), timeline.validation)
    before = timeline.held_out_of_round if len(timeline.held_out_of_round) else np.full(timeline.rounds, -1)
    pairs, of_round = np.unique(np.stack([before, timeline.assignment_of_round]), axis=1, return_inverse=True)
    kept, first = list(timeline.held_out), len(timeline.held_out)
    for place, assignment in pairs.T:
        clients = timeline.origin_of_client[timeline.assignments[assignment].clients]
        whole = everything if place < 0 else timeline.held_out[place]
        parts = [
            positions[np.isin(known.client[positions], clients)]
            for known, positions in ((test, whole.test), (train, whole.validation))
            if known.client is not None
        ]
        kept.append(HeldOut(*parts))
    following = timeline.next_of_round if len(timeline.next_of_round) else np.full(timeline.rounds, -1, dtype=np.int64)
    return replace(timeline, held_out=kept, held_out_of_round=first + of_round.ravel(), next_of_round=following)
