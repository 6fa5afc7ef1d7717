"""The user's Lightning callbacks: in the run key, continued with the run, named when they raise."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedtide.core.discovery.faults import PluginCrash
from fedtide.core.errors import SettingsError
from fedtide.runs.open_run import run_key
from small_runs import execute, history, in_parts

OWN = """
import lightning as L


class Noted(L.Callback):
    seen = []

    def __init__(self, start=0):
        self.total = start

    def on_train_epoch_end(self, trainer, module):
        self.total += 1
        Noted.seen.append((trainer.current_epoch, self.total, float(trainer.callback_metrics["test_accuracy"])))

    def state_dict(self):
        return {"total": self.total}

    def load_state_dict(self, state):
        self.total = state["total"]


class Pushing(L.Callback):
    def on_train_epoch_end(self, trainer, module):
        module.state.w *= 0.5


class Raising(L.Callback):
    def on_train_epoch_start(self, trainer, module):
        if module.state.round == 2:
            raise ValueError("too warm")


class Opaque(L.Callback):
    def state_dict(self):
        return {"itself": self}


class Greedy(L.Callback):
    def __init__(self):
        raise OSError("no license left")
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The module ``own_hooks`` in the working directory."""
    known = set(sys.path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_hooks.py").write_text(OWN)
    yield tmp_path / "own_hooks.py"
    sys.path[:] = [path for path in sys.path if path in known]
    sys.modules.pop("own_hooks", None)


def called(*names: str, **arguments: Any) -> dict[str, Any]:
    """Settings of the engine with some callbacks, the first with these arguments."""
    entries = [{"path": name if "." in name else f"own_hooks:{name}"} for name in names]
    entries[0] |= {"arguments": arguments}
    return {"engine": {"callbacks": entries}}


def key(settings: Any) -> str:
    data: Any = SimpleNamespace(digest="of the data")
    return run_key(settings, data)


@pytest.mark.slow
def test_what_a_callback_does_is_in_the_key(small: Any, own: Path) -> None:
    plain, noted, other = key(small()), key(small(**called("Noted"))), key(small(**called("Noted", start=1)))
    assert len({plain, noted, other}) == 3
    own.write_text(f"# Other words.\n{OWN}")
    assert key(small(**called("Noted"))) == noted
    own.write_text(OWN.replace("*= 0.5", "*= 0.6"))
    from fedtide.core.discovery import source

    for cached in (source.tree, source._meaning):
        cached.cache_clear()
    assert key(small(**called("Noted"))) != noted
    assert key(small()) == plain
    assert "callbacks" not in small().canonical()["engine"]


@pytest.mark.slow
def test_a_callback_goes_on_where_it_was(small: Any, run_once: Any, stop_after: Any, tmp_path: Path) -> None:
    """Its state and the count of epochs; the numbers of a round are Lightning's metrics."""
    settings = small(**called("Noted", start=10))
    run_once(settings, callbacks=[stop_after(3)])
    assert run_once(settings)["state"] == "complete"
    from own_hooks import Noted  # type: ignore[import-not-found]

    assert [(epoch, total) for epoch, total, _ in Noted.seen] == [(n, 11 + n) for n in range(6)]
    recorded = [float(row["test_accuracy"]) for row in history(tmp_path / "x")]
    assert [shown for *_, shown in Noted.seen] == pytest.approx(recorded)


@pytest.mark.slow
def test_an_interruption_changes_no_number(small: Any, tmp_path: Path, stop_after: Any) -> None:
    """What a callback does to a model after a round is part of the state after it."""
    settings, models = small(**called("Pushing")), []
    for name, stops in (("whole", ()), ("parts", (2, 5))):
        in_parts(settings, tmp_path, stop_after, *stops, name=name)
        models.append(torch.load(tmp_path / name / "model.pt", weights_only=True))
    assert all(torch.equal(models[0][part], models[1][part]) for part in models[0])
    execute(small(), tmp_path, name="plain")
    plain = torch.load(tmp_path / "plain" / "model.pt", weights_only=True)
    assert not all(torch.equal(models[0][part], plain[part]) for part in plain)


@pytest.mark.slow
def test_early_stopping_ends_the_run_in_the_same_round_after_an_interruption(
    small: Any, tmp_path: Path, stop_after: Any
) -> None:
    stopping = {"monitor": "test_accuracy", "mode": "min", "patience": 3}
    settings = small(**called("lightning.pytorch.callbacks.EarlyStopping", **stopping))
    summaries = [in_parts(settings, tmp_path, stop_after), in_parts(settings, tmp_path, stop_after, 2, 3, name="parts")]
    assert [(each["state"], each["rounds"]) for each in summaries] == [("pruned", 4)] * 2


def fault(own: Path) -> str:
    """The line about the exception of ``Raising``."""
    line = OWN.splitlines().index('            raise ValueError("too warm")') + 1
    return f"engine.callbacks.0.path = 'own_hooks:Raising': {own}:{line}: in on_train_epoch_start: ValueError: too warm"


@pytest.mark.slow
def test_a_callback_that_raises_is_named(fedtide: Any, folder: Path, own: Path) -> None:
    """The run has failed; what it has recorded is kept."""
    ended = fedtide("run", "-q", "--set", "engine.callbacks=[{path: 'own_hooks:Raising'}]")
    assert (ended.status, ended.out) == (1, [])
    assert ended.err == [f"fedtide: {fault(own)}; FEDTIDE_TRACEBACK=1 shows the whole traceback"]
    (history,) = folder.glob("runs/*/history.csv")
    assert len(history.read_text().splitlines()) == 3


def test_a_state_that_cannot_be_read_back_is_refused(small: Any, run_once: Any) -> None:
    with pytest.raises(PluginCrash, match=r"own_hooks:Opaque': state_dict should return numbers, strings, tensors"):
        run_once(small(**called("Opaque")))


@pytest.mark.parametrize(
    ("path", "arguments", "wanted"),
    [
        ("Noted", {"begin": 1}, r"engine\.callbacks\.0\.arguments: own_hooks:Noted takes no 'begin' \(known: start\)"),
        ("Greedy", {}, r"own_hooks\.py:\d+: in __init__: OSError: no license left"),
        ("OWN", {}, r"has no OWN \(known: Greedy, Noted, Opaque, Pushing, Raising\)"),
        ("lightning.pytorch.callbacks.ModelCheckpoint", {}, "saves its states, as `checkpoint` says, .*; leave this"),
        ("lightning.pytorch.callbacks.RichProgressBar", {}, "shows its progress itself; leave this out"),
        ("lightning.pytorch.loggers.CSVLogger", {"save_dir": "."}, "Callback, got the class CSVLogger"),
    ],
)
def test_bad_callbacks_are_refused(
    small: Any, run_once: Any, tmp_path: Path, path: str, arguments: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(SettingsError, match=wanted):
        run_once(small(**called(path, **arguments)))
    assert not (tmp_path / "x").exists()
