"""Small defects, one at a time, and whether the default test suite finds them.

A defect is a slip that is easy to make: a sign, an index, a missing factor, something that is not saved. It is put into a copy
of the tree, and tests run until one fails: first the likely files, then the likely folders, then the rest of the suite.
Finally all tests that failed run without any defect, on edited files that only gain an unused constant. A test that fails
there as well does not count, and its defects are judged again without it.

    python benchmarks/mutations.py --list                      # check that every defect fits the tree
    python benchmarks/mutations.py --likely --limit 360        # the likely tests, at most six minutes each
    python benchmarks/mutations.py --jobs 4                    # continue with the whole suite
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

DEFECTS = r"""
algorithms.scaffold: SCAFFOLD: c moves by 1/|S| instead of 1/N of the sum of the participants' changes
    algorithms/scaffold.py < algorithms/test_scaffold.py golden algorithms
    - torch.ones_like(r.omega)) / r.population
    + torch.ones_like(r.omega)) / len(r.ids)
algorithms.fedssg: FedSSG: the mean of kept control variates over a new population lacks the relative sizes omega
    algorithms/fedssg.py < algorithms/test_scaffold.py algorithms/test_drift_correction.py federation
    - ServerVector("c", mean_of="c_k", by_size=True)
    + ServerVector("c", mean_of="c_k")
algorithms.fedopt: FedOpt: sign of Yogi's second moment
    algorithms/fedopt.py < algorithms/test_fedopt.py golden
    - square * (v - square).sign()
    + square * (square - v).sign()
algorithms.feddc: FedDC: control variates divide by a client's own steps instead of those of a mean-sized client
    algorithms/feddc.py < algorithms/test_drift_correction.py algorithms/test_drift_quadratics.py golden
    - delta / (r.mean_steps * eta)
    + delta / (r.steps * eta)
algorithms.fedcm: FedCM: Delta divides by the undecayed learning rate
    algorithms/_momentum.py < algorithms/test_fedcm.py golden algorithms
    - (r.w - r.W) / (r.lr * self.step_count(r))
    + (r.w - r.W) / (r.lr0 * self.step_count(r))
algorithms.fedacg: FedACG: the momentum is the step from the lookahead instead of from the model
    algorithms/fedacg.py < algorithms/test_fedacg.py golden
    - r.server.m = x - r.w
    + r.server.m = x - self.start(r)
algorithms.fednova: FedNova: tau_eff with a proximal term is the mean norm instead of the mean number of steps
    algorithms/fednova.py < algorithms/test_fednova.py golden
    - (r.weights * (r.steps if self.settings.mu else a)).sum()
    + (r.weights * a).sum()
algorithms.fedwcm: FedWCM: alpha lives on the object instead of in the state, so a resumed run starts from alpha_0
    algorithms/fedwcm.py < algorithms/test_fedwcm.py contract/test_rounds.py
    - return float(r.extra["alpha"])
    + return getattr(self, "_alpha", self.settings.alpha0)
    - r.extra["alpha"] = torch.tensor(min(max(alpha, 0.1), 1.0), dtype=torch.float64)
    + self._alpha = min(max(alpha, 0.1), 1.0)
algorithms.fedgrab: FedGraB: the controller's errors of the last two rounds are stored in the wrong order
    algorithms/fedgrab.py < algorithms/test_longtail_systems.py
    - u.clamp(-_LIMIT, _LIMIT), e, self.e1)
    + u.clamp(-_LIMIT, _LIMIT), self.e1, e)
algorithms.fedgen: FedGen: Adam's moments of the generator are not kept from round to round
    algorithms/fedgen.py < algorithms/test_fedgen.py contract/test_rounds.py
    -         x["first"], x["second"] = moments["exp_avg"], moments["exp_avg_sq"]
algorithms.cfl_regularization: CFL-Regularization: the mean over the window divides by the number of all triples so far
    algorithms/_window.py < algorithms/test_cfl.py golden
    - kept[-window:].clone(), min(count, window)
    + kept[-window:].clone(), count
algorithms.creff: CReFF: a class's gradient is the mean over all participants, including those without the class
    algorithms/creff.py < algorithms/test_longtail_systems.py
    - torch.stack(gradients).sum(0) / holders
    + torch.stack(gradients).mean(0)
engine.last_batch: batch plan: the short last batch of an epoch is dropped
    engine/plan.py < engine/test_plan.py golden
    - batches = -(-size // local.step_samples)
    + batches = max(1, size // local.step_samples)
engine.nesterov: displacement per unit gradient: Nesterov's lookahead is ignored
    engine/local.py < engine/test_local.py algorithms/test_scaffold.py algorithms/test_fedcm.py golden
    - lag = momentum**2 if nesterov else momentum
    + lag = momentum
engine.decay: direct step: weight decay is left out
    engine/local.py < algorithms/test_fedavg.py engine/test_executors.py golden
    - shrink = 1.0 - self.lr * ((self.pull or 0.0) + self.decay)
    + shrink = 1.0 - self.lr * (self.pull or 0.0)
engine.frozen_memory: stacked executor: memories of a client that has finished keep changing
    engine/executors/stacked.py < engine/test_executors.py algorithms/test_sharpness.py golden
    - written = [training.w, *training.update.moments.values(), *(memory[rows] for memory in cohort.memories)]
    + written = [training.w, *training.update.moments.values()]
engine.padding: gradient: the padding of a short batch counts in the divisor of the mean loss
    engine/gradient.py < engine/test_executors.py golden
    - (values * keep).sum() / keep.sum().clamp(min=1)
    + (values * keep).mean()
engine.full_gradient: full gradient: the batches of a large shard are added as means
    engine/passes/evaluation.py < engine/test_evaluation.py algorithms/test_mime.py
    - losses.sum() / len(shard)
    + losses.mean()
engine.crop: augmentation: the last offset of the window is never drawn
    engine/augment.py < engine/test_augment.py
    - offset = (draw * (2 * self.crop + 1)).to
    + offset = (draw * (2 * self.crop)).to
engine.clip_scope: local step: weight decay inside the clip is added again outside
    engine/local.py < engine/test_local.py engine/test_executors.py
    - if self.has_decay and local.clip_scope != "total_with_decay":
    + if self.has_decay:
federation.schedule: learning rate: off by one, so a run ends at the floor and never uses its first rate
    federation/schedules.py < federation/test_schedules.py
    - progress = min(t / (local
    + progress = min((t + 1) / (local
federation.latest: a participant's latest local model is not kept
    federation/round.py < algorithms/test_drift_correction.py federation/test_boundaries.py federation golden
    - memory["latest"] = cohort.W
    + pass
federation.seen: session change: clients whose memories are cleared still count as seen
    federation/boundary.py < federation/test_boundaries.py algorithms/test_moon.py algorithms/test_sharpness.py federation
    - state.seen.zero_()
federation.departed: inside a session the memories of new clients are cleared instead of those of clients that left
    federation/plan.py < federation/test_boundaries.py federation
    - np.setdiff1d(before, now)
    + np.setdiff1d(now, before)
federation.totals: saved state: bytes, seconds and joules so far are not saved
    federation/state.py < runs/test_execution.py federation/test_checkpoint.py contract/test_rounds.py runs federation
    - return vars(self).copy()
    + return {name: value for name, value in vars(self).items() if name != "totals"}
federation.order: a round's state is saved before its rows are written: a kill in between loses the rows
    runs/callbacks.py < faults/test_sigkill.py runs/test_execution.py faults
    -         self.directory.append(record.row, record.per_class, record.clients, record.neurons, record.client_scores)
    -         last = module.state.round == module.timeline.rounds
    -         if module.diverged is None and (last or trainer.should_stop or module.state.round % self.every == 0):
    -             records = self.directory.mark_records()  # on the disk before the state that counts on them
    -             saved = checkpoint.Saved(self.key, module.state.round, records, module.state.tensors() | self.more())
    -             self._states.save(saved)
    +         last = module.state.round == module.timeline.rounds
    +         if module.diverged is None and (last or trainer.should_stop or module.state.round % self.every == 0):
    +             records = self.directory.mark_records()  # on the disk before the state that counts on them
    +             saved = checkpoint.Saved(self.key, module.state.round, records, module.state.tensors() | self.more())
    +             self._states.save(saved)
    +         self.directory.append(record.row, record.per_class, record.clients, record.neurons, record.client_scores)
records.bound: saved states of other runs are continued
    records/states.py < federation/test_checkpoint.py runs/test_lost_records.py
    - header.get("owner") != owner or path.name
    + path.name
records.beginning: records that were changed before a saved state are continued
    records/marks.py < records/test_marks.py runs/test_lost_records.py
    - elif _digest_of_beginning(folder / name, mark["bytes"]) != mark["sha256"]:
    + elif False:
federation.gradient_costs: gradient rounds are charged to the scratch state, so they cost nothing
    federation/gradient_rounds.py < initialisation/test_dynamic.py costs/test_run_costs.py initialisation federation costs
    - charge(self.parts, self.state, plan
    + charge(self.parts, scratch, plan
initialisation.rate: dynamic: gradient rounds use the full instead of half the learning rate
    initialisation/dynamic.py < initialisation/test_dynamic.py initialisation golden
    - lr = s.lr / 2 if c.gradient_lr is None
    + lr = s.lr if c.gradient_lr is None
initialisation.retention: retention: the newer model of the nearest pair is dropped
    initialisation/_retention.py < initialisation/test_retention.py initialisation
    - older, _ = min(combinations
    + _, older = min(combinations
initialisation.ema: pilot models: the oldest has the factor 1 - decay too, so the weights do not sum to one
    initialisation/_mixing.py < initialisation/test_mixing.py initialisation
    - (1 - decay if i else 1.0) * decay
    + (1 - decay) * decay
initialisation.oracle: oracle: an earlier model of the same devices is not replaced, so the oldest is always used
    initialisation/oracle.py < initialisation/test_oracle.py initialisation
    -         if (same := self._same(s)) is not None:
    -             forget(s.store, "session", same)
costs.powers: energy: the powers of sending and receiving are swapped
    costs/wireless.py < costs/test_wireless.py costs golden
    - s.receive_power * down_s + s.send_power * up_s
    + s.send_power * down_s + s.receive_power * up_s
costs.band: uploads do not share the band
    costs/wireless.py < costs/test_wireless.py costs golden
    - self._link(s.bandwidth / row.sum(), s.send_power
    + self._link(s.bandwidth, s.send_power
costs.buffers: ledger: BatchNorm statistics are not counted
    federation/payload.py < algorithms/test_fedacg.py costs/test_run_costs.py algorithms
    - return size + buffers if name in ("w", "W")
    + return size if name in ("w", "W")
costs.waits: averages inside a round: the time a client waits for one is not on its clock at the next
    costs/wireless.py < costs/test_wireless.py exchange/test_intervals.py costs golden
    -         clock[rows] += wait
report.deviation: mean and deviation over seeds: divisor n instead of n - 1
    records/metrics.py < report/test_report_metrics.py report
    - kept.std(ddof=1)
    + kept.std(ddof=0)
report.holm: Holm's correction: corrected p-values may decrease along their order
    records/statistics.py < report/test_report_statistics.py report
    - (ordered * factors).cummax().clip(upper=1.0)
    + (ordered * factors).clip(upper=1.0)
report.forgotten: forgetting: models from before a period count as its best
    records/forgetting.py < report/test_forgetting.py report
    - A[u:, u].max() - A[-1, u]
    + A[:, u].max() - A[-1, u]
report.gradient_rounds: transitions: the mean cost of a round does not divide by the gradient rounds
    report/transitions.py < report/test_transitions.py report
    - done = len(rounds) + total - before
    + done = len(rounds)
report.incomplete: table: runs that diverged or did not finish enter means and deviations
    report/method_table.py < report/test_report_table.py report
    - group["state"].value_counts(), group[group["state"] == "complete"]
    + group["state"].value_counts(), group
"""
"""``id: what is wrong``, then the file below ``src/fedtide`` ``<`` tests likely to fail, then edits as in a patch."""

PRIVATE = ("FEDTIDE_MIRROR", "FEDTIDE_MLRUNS", "FEDTIDE_PLUGINS", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST")
STAGES = ("files", "folders", "suite")

Row = dict[str, Any]


class Defect(NamedTuple):
    """One defect: pairs of an old text, which occurs once in ``file``, and a new one; ``look`` are paths below ``tests``."""

    id: str
    what: str
    file: str
    edits: tuple[tuple[str, str], ...]
    look: tuple[str, ...]


def parse(text: str) -> list[Defect]:
    """The defects of a text in the format of ``DEFECTS``."""
    found = []
    for block in re.split(r"\n(?=\S)", text.strip()):
        head, where, *lines = block.splitlines()
        id_, what = head.split(": ", 1)
        file, look = where.strip().split(" < ")
        edits: list[tuple[list[str], list[str]]] = []
        for line in lines:
            if line.startswith("    - "):
                if not edits or edits[-1][1]:
                    edits.append(([], []))
                edits[-1][0].append(line[6:])
            else:
                edits[-1][1].append(line[6:])
        pairs = tuple(("\n".join(old), "\n".join(new)) for old, new in edits)
        found.append(Defect(id_, what, file, pairs, tuple(look.split())))
    return found


def edited(text: str, defect: Defect) -> str:
    """The text of a file with a defect.

    Raises:
        SystemExit: an old text does not occur exactly once.
    """
    for old, new in defect.edits:
        if text.count(old) != 1:
            sys.exit(f"{defect.id}: {defect.file} has this text {text.count(old)} times, not once: {old!r}")
        text = text.replace(old, new)
    ast.parse(text)
    return text


class Tree:
    """A copy of the files of a project that git tracks, as they are in the working tree."""

    def __init__(self, project: Path, root: Path) -> None:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=project, check=True, capture_output=True, text=True)
        self.root = root
        for name in filter(None, listed.stdout.split("\0")):
            if (project / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(project / name, root / name)

    @contextmanager
    def changed(self, texts: dict[str, str]) -> Iterator[None]:
        """Files below ``src/fedtide`` with other contents for a while."""
        paths = {self.root / "src/fedtide" / file: text for file, text in texts.items()}
        before = {path: path.read_text(encoding="utf-8") for path in paths}
        for path, text in paths.items():
            path.write_text(text, encoding="utf-8")
        try:
            yield
        finally:
            for path, text in before.items():
                path.write_text(text, encoding="utf-8")

    def source(self, file: str) -> str:
        """A file below ``src/fedtide``."""
        return (self.root / "src/fedtide" / file).read_text(encoding="utf-8")

    def tests(self, jobs: int, limit: float, *arguments: str) -> list[str] | None:
        """The tests that fail, none if all pass, ``None`` if pytest takes longer than ``limit`` seconds or is killed."""
        kept = {name: value for name, value in os.environ.items() if name not in PRIVATE}
        kept |= {"PYTHONPATH": str(self.root / "src"), "DVC_NO_ANALYTICS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-n"]
        command += [str(jobs if jobs > 1 else 0), *arguments]
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)  # examples that failed with another defect
        pipes: dict[str, Any] = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        # A session of its own: what a test has started ends with it.
        with subprocess.Popen(command, cwd=self.root, env=kept, start_new_session=True, **pipes) as process:
            try:
                printed, _ = process.communicate(timeout=limit)
            except BaseException as stop:
                os.killpg(process.pid, 9)
                if not isinstance(stop, subprocess.TimeoutExpired):
                    raise
                return None
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+?\.py\S*(?: .*?)??)(?: - .*)?$", printed, re.MULTILINE)
        if process.returncode in (0, 5):
            return []
        if not failed:
            print(printed[-2000:], file=sys.stderr)
        return failed or None


def judge(tree: Tree, defect: Defect, jobs: int, limit: float, ignored: set[str], done: str, last: str) -> Row:
    """Search the stages after ``done`` up to ``last`` for a test that finds a defect."""
    began, found, searched = time.monotonic(), "", done
    look = [f"tests/{name}" for name in defect.look if (tree.root / "tests" / name).exists()]
    files, folders = ([name for name in look if name.endswith(".py") == wanted] for wanted in (True, False))
    skip = [f"--deselect={name}" for name in sorted(ignored)]
    parts = {"files": files, "folders": folders, "suite": ["tests"]}
    first = STAGES.index(done) + 1 if done else 0
    with tree.changed({defect.file: edited(tree.source(defect.file), defect)}):
        for stage in STAGES[first : STAGES.index(last) + 1]:
            passed = [name for earlier in STAGES[: STAGES.index(stage)] for name in parts[earlier]]
            if parts[stage]:
                left = limit - (time.monotonic() - began)
                failed = tree.tests(jobs, left, "-x", *parts[stage], *(f"--ignore={name}" for name in passed), *skip)
                if failed is None:
                    break
                found = failed[0] if failed else ""
            searched = stage
            if found:
                break
    seconds = round(time.monotonic() - began, 1)
    return {"id": defect.id, "what": defect.what, "found_by": found or None, "searched": searched, "seconds": seconds}


def sensitive(tree: Tree, defects: list[Defect], tests: set[str], jobs: int) -> set[str]:
    """Those of some tests that fail without a defect as well, after a harmless change of the same files."""
    harmless = {defect.file: tree.source(defect.file) + "\n_NOTHING = 0\n" for defect in defects}
    with tree.changed(harmless):
        return set(tree.tests(jobs, 3600, *sorted(tests)) or ()) if tests else set()


def read(results: Path) -> dict[str, Row]:
    """What is known already, by id; the last line may be torn."""
    known = {}
    for line in results.read_text(encoding="utf-8").splitlines() if results.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        known[row["id"]] = row
    return known


def print_table(rows: list[Row]) -> None:
    """The results, in Markdown."""
    print("| defect | what | found by | s |\n|---|---|---|---:|")
    for row in rows:
        missed = (
            "**not found**" if row["searched"] == STAGES[-1] else f"not found so far ({row['searched'] or 'limit'})"
        )
        test = f"`{row['found_by']}`" if row["found_by"] else missed
        print(f"| {row['id']} | {row['what']} | {test} | {row['seconds']:.0f} |")
    print(f"\n{sum(bool(row['found_by']) for row in rows)} of {len(rows)} found")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    project = Path(__file__).resolve().parents[1]
    parser.add_argument("--tree", type=Path, default=project, help="the project, of which a copy is tested")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these defects, or all whose id begins like this")
    parser.add_argument("--jobs", type=int, default=1, help="processes of pytest")
    parser.add_argument("--likely", action="store_true", help="only the tests most likely to fail, not the whole suite")
    parser.add_argument("--limit", type=float, default=3600, help="seconds for each defect")
    parser.add_argument("--results", type=Path, default=Path("mutations.jsonl"), help="JSON lines, continued")
    parser.add_argument("--list", action="store_true", help="only check that every defect fits the tree, and name them")
    given = parser.parse_args()
    chosen = [d for d in parse(DEFECTS) if not given.only or any(d.id.startswith(name) for name in given.only)]
    if given.list:
        for defect in chosen:
            edited((given.tree / "src/fedtide" / defect.file).read_text(encoding="utf-8"), defect)
            print(f"{defect.id:34}{defect.what}")
        return
    known, ignored, last = read(given.results), set[str](), STAGES[1 if given.likely else 2]
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        tree = Tree(given.tree.resolve(), Path(folder) / "tree")
        while True:
            for defect in chosen:
                row = known.get(defect.id, {"found_by": None, "searched": ""})
                if row["found_by"] or row["searched"] in ("suite", last):
                    continue
                row = known[defect.id] = judge(tree, defect, given.jobs, given.limit, ignored, row["searched"], last)
                with given.results.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(row) + "\n")
                print(f"{row['id']}: {row['found_by']} ({row['seconds']} s)", file=sys.stderr, flush=True)
            found = {defect.id: known[defect.id]["found_by"] for defect in chosen if known[defect.id]["found_by"]}
            false = sensitive(
                tree, [defect for defect in chosen if defect.id in found], set(found.values()), given.jobs
            )
            if not false:
                break
            ignored |= false
            known = {id_: row for id_, row in known.items() if row["found_by"] not in false}
    print_table([known[defect.id] for defect in chosen])


if __name__ == "__main__":
    main()
