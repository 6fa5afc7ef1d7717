"""Small worlds for the tests of this folder."""

import numpy as np

from fedtide.core import plugins
from fedtide.world.dataset import Samples
from fedtide.world.scenarios.base import WorldInput


def plugin(kind, name, **chosen):
    cls = plugins.load(kind, name)
    return cls(cls.Settings(**chosen))


def world(classes=10, each=30, partition="iid", seed=0, validation=20, **chosen):
    """Balanced shuffled labels; the first ``validation`` positions are held out."""
    labels = np.random.default_rng(7).permutation(np.repeat(np.arange(classes), each))
    positions = np.arange(len(labels))
    rule = plugin("partitions", partition, **chosen)
    return WorldInput(Samples(labels), positions[validation:], positions[:validation], classes, rule, seed)


def timeline(scenario, world_, **chosen):
    return plugin("scenarios", scenario, **chosen).timeline(world_)


def presence(made):
    """The clients present in each round."""
    return [made.at(round_).clients.tolist() for round_ in range(made.rounds)]
