"""The files that plug-ins start from: the examples of the guide, ``docs/extend*.md``."""

from __future__ import annotations

import ast
import keyword
import re
from dataclasses import dataclass

from fedtide.core.errors import SettingsError


@dataclass(frozen=True)
class Template:
    """An example plug-in: its name, its class and its source."""

    name: str
    cls: str
    code: str

    def renamed(self, name: str) -> str:
        """The source of a plug-in of another name.

        Raises:
            SettingsError: the class would have the name of something else in the source.
        """
        cls = "".join(part.capitalize() for part in name.split("_"))
        found = [
            node for node in ast.walk(ast.parse(self.code)) if isinstance(node, ast.Name | ast.alias | ast.ClassDef)
        ]
        taken = {node.id if isinstance(node, ast.Name) else node.name for node in found} - {self.cls}
        if cls in taken or keyword.iskeyword(cls):
            raise SettingsError(f"name = {name!r}: its class would be {cls}, which is taken; choose another name")
        code = re.sub(rf"\bclass {self.cls}\b", f"class {cls}", self.code)
        return re.sub(rf'(?<=["\.]){self.name}(?=")', name, code)


TEMPLATES = {
    "algorithms": Template(
        "fedshrink",
        "FedShrink",
        '''from fedtide import Algorithm, AlgorithmSettings, Local, Round, Tunable


class FedShrink(Algorithm):
    """FedAvg whose clients are pulled towards the mean of the models they last sent."""

    class Settings(AlgorithmSettings):
        name: str = "fedshrink"
        pull: float = Tunable(0.1, low=0.01, high=1.0, log=True, ge=0, description="strength of the pull")

    client = ("last",)  # a vector per client, zero for a client never seen

    def local(self, r: Round) -> Local:
        known = r.seen * r.client.last + (1 - r.seen) * r.w
        return Local(pull=self.settings.pull, towards=r.mean(known))

    def finish(self, r: Round):
        r.client.last = r.W
        return r.average()
''',
    ),
    "data": Template(
        "visits",
        "Visits",
        '''from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from fedtide import SplitSettings, from_torch
from fedtide.data.base import Dataset, DatasetPlugin, DatasetSettings


class Visits(DatasetPlugin):
    """Visits to three shops in the first 200 days of 1970."""

    class Settings(DatasetSettings):
        name: str = "visits"

    def read(self, raw: Path) -> Dataset:
        inputs = torch.rand(600, 4, generator=torch.Generator().manual_seed(0))
        shop, second = torch.arange(600) % 3, torch.arange(600) * 28_800
        visits = TensorDataset(inputs, (inputs.sum(1) > 2).long(), shop, second)
        return from_torch(visits, client=2, time=3, split=SplitSettings(share=0.25))
''',
    ),
    "detectors": Template(
        "twice",
        "Twice",
        '''from pydantic import Field

from fedtide.detectors.base import Detector, DetectorSettings, Stream


class Twice(Detector):
    """The loss is a multiple of the least one so far."""

    class Settings(DetectorSettings):
        name: str = "twice"
        multiple: float = Field(2.0, gt=1, description="of the least loss, which is an alarm")

    settings: Settings

    def begin(self, seed: int) -> Stream:
        losses = list[float]()

        def alarms(loss: float) -> bool:
            losses.append(loss)
            return loss > self.settings.multiple * min(losses)

        return alarms
''',
    ),
    "models": Template(
        "bottleneck",
        "Bottleneck",
        '''import math

from pydantic import Field
from torch import Tensor, nn

from fedtide.models.base import Model, Network


class _Bottleneck(Network):
    def __init__(self, size: int, width: int, num_classes: int) -> None:
        super().__init__()
        self.narrow = nn.Linear(size, width)
        self.head = nn.Linear(width, num_classes)

    def features(self, inputs: Tensor) -> Tensor:
        return self.narrow(inputs.flatten(1)).tanh()


class Bottleneck(Model):
    """One narrow hidden layer with tanh."""

    family = "mlp"

    class Settings(Model.Settings):
        name: str = "bottleneck"
        width: int = Field(8, ge=1, description="units of the hidden layer")

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        return _Bottleneck(math.prod(input_shape), self.settings.width, num_classes)
''',
    ),
    "partitions": Template(
        "skewed",
        "Skewed",
        '''import numpy as np
from pydantic import Field

from fedtide.partitions.base import Ints, Partition
from fedtide.core.randomness import generator


class Skewed(Partition):
    """Samples at random, with sizes that follow a power law."""

    class Settings(Partition.Settings):
        name: str = "skewed"
        power: float = Field(1.0, ge=0, description="client k gets a share proportional to k ** -power; 0: equal sizes")

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        order = generator(seed, "partition.skewed", group).permutation(len(labels))
        shares = np.arange(1, num_clients + 1) ** -self.settings.power
        ends = np.cumsum(shares / shares.sum() * len(labels)).astype(np.int64)
        return np.split(order, ends[:-1])
''',
    ),
    "scenarios": Template(
        "growing",
        "Growing",
        '''import numpy as np
from pydantic import Field

from fedtide.scenarios.base import Scenario, WorldInput
from fedtide.world.timeline import Assignment, Timeline


class Growing(Scenario):
    """One client at the start; another one arrives after every session and nobody leaves."""

    class Settings(Scenario.Settings):
        name: str = "growing"
        num_clients: int = Field(3, ge=1, description="clients in the end, which is also the number of sessions")
        rounds_per_session: int = Field(2, ge=1, description="communication rounds between two arrivals")

    def timeline(self, world: WorldInput) -> Timeline:
        clients, classes = self.settings.num_clients, world.num_classes
        dealt = world.partition.deal(world.labels[world.train], clients, classes, world.seed)
        present = [np.arange(session + 1) for session in range(clients)]
        session_of_round = np.repeat(np.arange(clients), self.settings.rounds_per_session)
        return Timeline(
            num_clients=clients,
            num_classes=classes,
            shards=[np.sort(world.train[places]) for places in dealt],
            assignments=[Assignment(ids, ids) for ids in present],  # client k holds shard k
            assignment_of_round=session_of_round,
            session_of_round=session_of_round,
            label_views=np.ones((1, classes), dtype=np.bool_),  # all labels, in every round
            view_of_round=np.zeros_like(session_of_round),
            validation=world.validation,
        )
''',
    ),
    "uplink": Template(
        "half_precision",
        "HalfPrecision",
        '''from torch import Tensor

from fedtide.core.plugins import PluginSettings
from fedtide.uplink.base import Link, Sending


class HalfPrecision(Link):
    """Updates are sent in half precision."""

    place = 5

    class Settings(PluginSettings):
        name: str = "half_precision"

    def bits(self, size: int) -> int:
        return 16 * size

    def apply(self, D: Tensor, s: Sending) -> dict[str, Tensor]:
        D.copy_(D.half())
        return {}
''',
    ),
}
