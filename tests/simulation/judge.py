"""What must hold in every schedule."""

from __future__ import annotations

from typing import Any

from disk import Disk, SimPath
from kernel import Kernel, Process

from fedtide.core.errors import SettingsError
from fedtide.federation.saving import checkpoint
from fedtide.mirror import check
from fedtide.records.run_directory import RunDirectory

KEY = "fedavg-previous-s0-0123456789ab"
SETTINGS = {"seed": 0}
ROUNDS = 6
_FOLDER = "/runs/run/"


class Judge:
    """Watches writes while a schedule runs, and the records at its end."""

    def __init__(self, kernel: Kernel, disk: Disk, fenced: bool) -> None:
        self._kernel, self.problems = kernel, list[str]()
        self.claims = self._fence = self.take_overs = 0
        self._last: Process | None = None
        if fenced:
            disk.changed, disk.removed = self._changed, self._removed

    def claimed(self, process: Process) -> int:
        """A process has the run; a number for its claim."""
        self.claims += 1
        process.claim = self.claims
        before, self._last = self._last, process
        if before is not None and not before.dead and not before.outcome:
            self.take_overs += 1
            self._kernel.tell(f"process {process.number} on {process.host} takes over from {before.number}")
        else:
            self._kernel.tell(f"process {process.number} on {process.host} has the run")
        return self.claims

    def resumed(self, process: Process, saved: Any) -> None:
        """From here on, nobody who had the run before changes a file of it."""
        self._fence = max(self._fence, process.claim)
        self._kernel.tell(f"process {process.number} continues from round {saved.round if saved else 0}")

    def _changed(self, name: str) -> None:
        process = self._kernel.process
        counts = name.startswith(_FOLDER) and not name.endswith(".part") and "/.lock" not in name
        if counts and 0 < process.claim < self._fence:
            self._kernel.tell(f"process {process.number} changes {name}")
            self.problems.append(f"a former owner changes {name.removeprefix(_FOLDER)}")

    def _removed(self, name: str) -> None:
        """Not even a former owner's last step does harm to what two newer states have superseded, or no state names."""
        states = sorted(each for each in SimPath.disk.files if each.startswith(f"{_FOLDER}state/state-"))
        newest = b"".join(SimPath.disk.files[each].data for each in states[-2:])
        superseded = name in states[:-2] or (name not in states and name.rpartition("/")[2].encode() not in newest)
        if not (name.startswith(f"{_FOLDER}state/") and superseded):
            self._changed(name)

    def is_finished(self) -> bool:
        return f"{_FOLDER}summary.json" in SimPath.disk.files

    def verdict(self) -> list[str]:
        """All that does not hold, when everybody has ended."""
        directory = RunDirectory(SimPath(_FOLDER.rstrip("/")))  # type: ignore[arg-type]
        problems = list(self.problems)
        for verify in (check._manifest, check._records, check._states):
            try:
                problems += verify(directory)
            except SettingsError as error:
                problems.append(str(error))
        if problems:
            return problems
        try:
            rows = directory.history()
            saved, skipped = checkpoint.load(directory.state, KEY, directory.lost)
        except SettingsError as error:
            return [str(error)]
        if [int(row["round"]) for row in rows] != [*range(1, ROUNDS + 1)]:
            problems.append(f"rounds {[row['round'] for row in rows]}")
        if saved is None or saved.round != ROUNDS or skipped:
            problems.append(f"no whole state of the last round, {list(skipped.values())}")
        elif (owners := [int(row["seconds"]) for row in rows]) != saved.values["chain"].tolist():
            problems.append(f"rows of {owners}, state of {saved.values['chain'].tolist()}")
        else:
            memory = saved.values["memory"]
            rows_ = {"rows": saved.values["chain"].new_zeros(2, 1).float()}
            memory.write_into(rows_) if hasattr(memory, "write_into") else rows_.update(memory)
            want = [float(owners[ROUNDS - 1 - (ROUNDS - client) % 2]) for client in range(2)]
            if rows_["rows"][:, 0].tolist() != want:
                problems.append(f"memories of {rows_['rows'][:, 0].tolist()} instead of {want}")
        return problems
