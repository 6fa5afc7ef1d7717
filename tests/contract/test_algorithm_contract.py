"""Words that an algorithm declares are known."""

import pytest

from fedtide.core import plugins
from fedtide.core.discovery.faults import PluginError
from fedtide.federation.assembly.choose import refuse_unknown_words
from fedtide.methods.algorithms.base import ADMITS, NEEDS, Algorithm


@pytest.mark.parametrize("declared", ["admits", "needs"])
def test_every_word_has_an_algorithm(declared: str) -> None:
    kinds = {name: plugins.load(Algorithm, name) for name in plugins.names("algorithms")}
    made = {word for name, kind in kinds.items() for word in getattr(kind(kind.Settings(name=name)), declared)}
    assert made == {"admits": ADMITS, "needs": NEEDS}[declared].keys()


@pytest.mark.parametrize(("declared", "words"), [("admits", ("sum",)), ("admits", "sums"), ("needs", ("head",))])
def test_other_words_are_refused(declared: str, words: object) -> None:
    algorithm = plugins.load(Algorithm, "fedavg")
    instance = algorithm(algorithm.Settings())
    setattr(instance, declared, words)
    with pytest.raises(PluginError, match=f"{declared} of fedavg should return a sequence of words among"):
        refuse_unknown_words(instance)
