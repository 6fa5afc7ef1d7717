"""Lightning loggers: each gets every round once, also if the run is interrupted and continued."""

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

from fedtide.core import lightning as L
from fedtide.core.discovery.imports import make, named
from fedtide.core.errors import shortened
from fedtide.core.storage.files import short_hash, write_json
from fedtide.records.run_directory import LOGGERS, RunDirectory, finite, hashed, read_hashed, read_json
from fedtide.runs.lightning.callbacks import RoundBatches
from fedtide.runs.lightning.trainer import quiet_lightning
from fedtide.settings.run import Imported

_CALLED = ("log_hyperparams", "log_metrics", "log_graph", "save", "finalize")


def make_loggers(chosen: Sequence[Imported], directory: Path) -> list[Logger]:
    """The loggers of ``tracking.loggers`` for a run directory; nothing is written.

    By default ``save_dir`` is the run directory and ``name`` is empty, or with a ``save_dir`` the name of the run directory.
    TensorBoard and CSV files go to the folders ``tensorboard`` and ``csv``, where a continued run continues them.

    Raises:
        SettingsError: one cannot be imported or made from its arguments, or is no logger.
    """
    return [_made(one, f"tracking.loggers.{number}", directory) for number, one in enumerate(chosen)]


def refuse_bad_loggers(chosen: Sequence[Imported]) -> None:
    """Make them for a temporary folder; raises as :func:`make_loggers`."""
    with tempfile.TemporaryDirectory() as folder:
        make_loggers(chosen, Path(folder))


def _made(one: Imported, key: str, directory: Path) -> Logger:
    maker = named(one.path, f"{key}.path")
    defaults = {"save_dir": str(directory), "name": directory.name}
    for kind, word in _FILES.items():
        if isinstance(maker, type) and issubclass(maker, kind):
            defaults |= {"version": word} | ({} if "save_dir" in one.arguments else {"name": ""})
    return make(one.path, one.arguments, Logger, key, **defaults)


_FILES: dict[type[Logger], str] = {TensorBoardLogger: "tensorboard", CSVLogger: "csv"}


class RoundLog(RoundBatches):
    """Logs the rounds of a run directory, with the round as the step, and the settings as hyperparameters.

    After its first failure, which is logged in one line, a logger gets nothing more; training continues.
    """

    def __init__(self, chosen: Sequence[Imported], directory: RunDirectory, log: Callable[[str], None]) -> None:
        super().__init__()
        self._directory, self._log = directory, log
        known = read_hashed(directory.path / LOGGERS) or {}
        self._last: dict[str, int] = {}
        self.loggers: list[Logger] = []
        for place, (one, logger) in enumerate(zip(chosen, make_loggers(chosen, directory.path), strict=True)):
            title, name = f"tracking.loggers.{place} ({one.path})", short_hash([place, one.model_dump(mode="json")])
            try:
                with quiet_lightning():
                    getattr(logger, "experiment", None)
            except Exception as error:  # whatever a library or the disk may raise
                self._log(f"{title}: {_first_line(error)}; training continues without it")
                continue
            _fail_softly(logger, title, self._log)
            # Lightning's file of comma-separated values begins anew with every process.
            self._last[name] = 0 if isinstance(logger, CSVLogger) else int(known.get(name, 0))
            self.loggers.append(logger)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Log the settings, before Lightning has loggers save what they have."""
        for logger in self.loggers:
            logger.log_hyperparams(read_json(self._directory.path / "settings.json") or {})

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._rows = [*self._directory.history()]
        self.flush()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.flush()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self.flush()

    def send(self, rows: Sequence[Mapping[str, Any]]) -> None:
        before = dict(self._last)
        self._last = {name: max(last, int(rows[-1]["round"])) for name, last in before.items()}
        # First: the process may be killed before the end, and no round is logged twice.
        write_json(self._directory.path / LOGGERS, hashed(self._last), durable=True)
        for logger, last in zip(self.loggers, before.values(), strict=True):
            for row in rows:
                if int(row["round"]) > last:
                    logger.log_metrics(dict(finite(row)), step=int(row["round"]))
            logger.save()


def _fail_softly(logger: Any, title: str, log: Callable[[str], None]) -> None:
    """Log the first exception of a logger in one line, and make its later calls do nothing."""
    failed: list[BaseException] = []

    def guarded(method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if failed:
            return None
        try:
            return method(*arguments, **named)
        except Exception as error:  # whatever a library or the disk may raise
            failed.append(error)
            log(f"{title}: {_first_line(error)}; training continues without it")
            return None

    for name in _CALLED:
        setattr(logger, name, functools.partial(guarded, getattr(logger, name)))


def _first_line(error: BaseException) -> str:
    name, text = type(error).__name__, str(error)
    return shortened(f"{name}: {text}" if text else name)
