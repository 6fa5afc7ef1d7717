"""What ``torchrun`` and ``srun`` have written into the environment: this process's number, and how many there are."""

import os

from fedtide.core.errors import SettingsError


def launched() -> int:
    """Number of processes that a launcher has started for this command; 1 without a launcher."""
    if "RANK" in os.environ:
        return number("WORLD_SIZE", 1)
    return number("SLURM_STEP_NUM_TASKS", 1)  # of srun; a batch script has none


def global_rank() -> int:
    """This process's number among all of its run, also before there is a process group.

    Lightning sets ``LOCAL_RANK`` in the processes that it starts on one machine itself.
    """
    if launched() > 1:
        return number("RANK" if "RANK" in os.environ else "SLURM_PROCID")
    return number("LOCAL_RANK", 0)


def number(name: str, default: int | None = None) -> int:
    """A launcher's variable; a SettingsError if it is no number."""
    found = os.environ.get(name, default)
    if not str(found).isdecimal():
        raise SettingsError(f"{name} = {found!r} in the environment: should be a number, as torchrun and srun set it")
    return int(str(found))
