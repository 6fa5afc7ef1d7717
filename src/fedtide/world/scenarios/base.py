"""What a scenario plug-in provides: a pure function from labels and a seed to a timeline."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedtide.core.array_types import Ints
from fedtide.core.plugins import Plugin
from fedtide.world.dataset import Samples
from fedtide.world.partitions.base import Partition
from fedtide.world.timeline import Timeline


@dataclass(frozen=True)
class WorldInput:
    """What a scenario is made from.

    Attributes:
        samples: the whole training set. test: the test set, if the scenario evaluates parts of it.
        train: int64, positions that may be dealt (after long-tail thinning and the validation split), ascending.
        validation: int64, positions held out for tuning.
        num_classes: L. unit: of the times of samples. partition: deals positions to clients.
        seed: the world's seed; draws use ``generator(seed, purpose, ...)``.
        events: whether the run has ``mode: async``, in which clients come and go in seconds if the scenario knows these.
    """

    samples: Samples
    train: Ints
    validation: Ints
    num_classes: int
    partition: Partition
    seed: int
    test: Samples | None = None
    unit: str = "s"
    events: bool = False

    @property
    def labels(self) -> Ints:
        """Labels of the whole training set, int64 [n]."""
        return self.samples.label


class Scenario(Plugin):
    """Writes the timeline."""

    kind: ClassVar[str] = "scenarios"

    def files(self) -> tuple[Path, ...]:
        """Files whose content the timeline depends on; part of the run key."""
        return ()

    @property
    def in_seconds(self) -> bool:
        """Whether it knows the seconds at which clients come and go, and writes them with ``mode: async``."""
        return False

    def period_of(self, times: Ints, unit: str) -> Ints | None:
        """The period of each time, if validation samples are held out period by period; int64."""
        return None

    def partition_settings(self) -> Collection[str] | None:
        """Names of the partition's settings that the timeline depends on; ``None`` for all, ``name`` included."""
        return None

    @abstractmethod
    def timeline(self, world: WorldInput) -> Timeline:
        """The timeline of a run.

        Raises:
            SettingsError: the request is impossible; the message names the setting and the largest feasible value.
        """
