"""Family ``uplink``: links that updates pass on their way, attacks on them, and the rules that combine what arrives."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtide.core import plugins
from fedtide.federation.features.rule import AggregationRule
from fedtide.federation.federation import Federation
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.types import RunState
from fedtide.methods.uplink.base import Link, Sending
from golden.families.case import Case, Check, Fields, Outcome, chosen, local_settings, samples, vectors_at_end
from support import deal, one, timeline

CONVENTIONS: dict[str, dict[str, Any]] = {"mifa": {"units": "gradient", "begin": "zero"}, "alie": {"z": None}}
"""Forms of an algorithm or an attack that the file's notes name."""

NOISE = "noise"
"""Name of the link that a file calls privacy."""


@dataclass
class Seen:
    """What was seen of a run, by round: updates [C, d] before and after every link, kept shares, bounds of the next rounds."""

    updates: list[dict[str, tuple[Tensor, Tensor]]] = field(default_factory=list)
    kept: list[list[float] | None] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)


def read(run: dict[str, Any], problems: dict[str, Any]) -> Case:
    """See :mod:`golden.families`."""
    fields, seen = Fields(run), Seen()
    data, sizes = samples(problems[fields["problem"]])
    fields.pass_over("name")
    local = local_settings(fields, clip_scope="total")
    absent = fields.either("absent", [[]] * fields["R"])
    present = [{client: client for client in range(len(sizes)) if client not in away} for away in absent]
    links = fields.either("uplink", {})
    settings: dict[str, Any] = {"local": local, "uplink": _links(links, len(fields["w0"]))}
    if "aggregator" in fields:
        settings["aggregation"] = _rule(fields["aggregator"])
    if "attack" in fields:
        settings["attack"] = CONVENTIONS.get(fields["attack"]["name"], {}) | fields["attack"]
    conventions = {"weighting": fields["weighting"], **CONVENTIONS.get(fields["algorithm"], {})}
    settings["algorithm"] = chosen(fields, "algorithms", fields["algorithm"], conventions)
    draws = {key: fields[key] for key in ("uniform", "normal", "nodes", "bit_normal", "permutations") if key in fields}

    def check(fields: Fields, outcome: Outcome) -> Iterator[Check]:
        return _checks(fields, outcome, seen, draws)

    return Case(
        fields,
        data,
        timeline(deal(sizes), present, clients=len(sizes), classes=data.num_classes),
        fields["selected"],
        settings,
        check,
        script=lambda federation: _script(federation, links, draws, seen),
    )


def _links(links: dict[str, Any], d: int) -> list[dict[str, Any]]:
    """Settings of the links; parts of d are given as fractions here, and the denominator is that of the cohorts."""
    found = [{"name": "clip", **links["clip"]}] if "clip" in links else []
    if "compress" in links:
        given = {**links["compress"]}
        if "k" in given:
            given["fraction"] = given.pop("k") / d
        if "error_feedback" in plugins.load("uplink", given["name"]).Settings.model_fields:
            given.setdefault("error_feedback", False)
        found.append(given)
    if "privacy" in links:
        given = {key: value for key, value in links["privacy"].items() if key != "denominator"}
        found.append({"name": NOISE, "multiplier": given.pop("z"), **given})
    return found


def _rule(aggregator: dict[str, Any]) -> dict[str, Any]:
    """Settings of the rule, with the spelling used here."""
    spelled = {"centred_clipping": "centered_clipping", "centre": "center"}
    name = spelled.get(aggregator["name"], aggregator["name"])
    return {spelled.get(key, key): value for key, value in aggregator.items()} | {"name": name}


class Given:
    """A generator of prescribed numbers."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = np.array(numbers, dtype=np.float64)

    def random(self, size: Any = None) -> Any:
        """Uniform numbers."""
        return self._numbers(size)

    def standard_normal(self, size: Any = None) -> Any:
        """Normal numbers."""
        return self._numbers(size)

    def permutation(self, count: int) -> Any:
        """An order."""
        return self._numbers(count).astype(np.int64)

    def _numbers(self, size: Any) -> Any:
        assert self.numbers.shape == (() if size is None else (size,))
        return self.numbers if self.numbers.ndim else float(self.numbers)


@dataclass(frozen=True)
class Scripted(Sending):
    """Participants whose draws are prescribed: ``own`` of each, ``common`` to all, by the keys of a draw."""

    own: Any = None
    common: Any = None

    def generator(self, row: int) -> Any:
        return Given(self.own[row])

    def shared(self, *keys: int) -> Any:
        return Given(self.common["/".join(map(str, keys))] if keys else self.common)


def _script(federation: Federation, links: dict[str, Any], draws: dict[str, Any], seen: Seen) -> None:
    """Put the file's draws and its expected cohort into links and rule, and note what happens in every round."""
    parts, run_round = federation.parts, federation.run_round
    if "privacy" in links:
        noise: Any = parts.links[-1]
        noise.expected[:] = links["privacy"]["denominator"]

    def scripted(s: Sending, name: str) -> Sending:
        (t,) = s.keys
        normal = draws["nodes"] if "nodes" in draws else draws.get("normal", {t: None})[t]
        common = draws["bit_normal"][t] if name == "clip" and "bit_normal" in draws else normal
        return Scripted(**vars(s), own=draws["uniform"][t] if "uniform" in draws else None, common=common)

    def watch(link: Link) -> None:
        name, apply = link.settings.name, link.apply
        finish = getattr(link, "finish", None)

        def watched(D: Tensor, s: Sending) -> Any:
            before = D.clone()
            found = apply(D, scripted(s, name))
            seen.updates[-1][name] = before, D.clone()
            return found

        link.apply = watched  # type: ignore[method-assign]
        if finish is not None:
            link.finish = lambda columns, s: finish(columns, scripted(s, name))  # type: ignore[attr-defined]

    def watched_round(state: RunState) -> RoundRecord:
        seen.updates.append({})
        record = run_round(state)
        seen.kept.append(record.clients.get("kept"))  # type: ignore[arg-type]
        seen.bounds.append(float(state.features.get("uplink", {}).get("clip", {}).get("bound", math.nan)))
        return record

    for link in parts.links:
        watch(link)
    if "permutations" in draws:
        rule: Any = one(parts, AggregationRule).rule
        over = rule.over
        rule.over = lambda D, p, extra, _: over(D, p, extra, Given(draws["permutations"][len(seen.updates) - 1]))
    federation.run_round = watched_round  # type: ignore[method-assign]


def _checks(fields: Fields, outcome: Outcome, seen: Seen, draws: dict[str, Any]) -> Iterator[Check]:
    links = fields.either("uplink", {})
    for when, t in (("first", 0), ("final", -1)):
        for name, value in fields[when].items():
            yield f"{when}.{name}", {"cloud": outcome.rounds[t][1]}[name], value
    bits = _bits(outcome)
    sent = sum(len(record["weights"]) for record in fields["rounds"])
    yield "bits_total", bits * sent, fields["bits_total"]
    payload = -(-bits // 8) * len(outcome.federation.parts.algorithm.up)
    yield "bytes", outcome.state.totals["bytes_up"], payload * sent
    for t, record in enumerate(fields["rounds"]):
        ours = _round(outcome, seen, links, draws.get("normal"), t)
        for name, value in record.items():
            yield f"round {t + 1}: {name}", ours.get(name, "unknown"), value
    named = fields["server"] | fields["client"]
    if "errors" in fields:
        named[f"uplink.{links['compress']['name']}.error"] = fields["errors"]
    yield from vectors_at_end(named, outcome.state)
    if "bound_next" in fields:
        yield (
            "bound_next",
            seen.bounds[-1] if "quantile" in links["clip"] else links["clip"]["bound"],
            fields["bound_next"],
        )


def _bits(outcome: Outcome) -> int:
    """Bits of one update."""
    parts = outcome.federation.parts
    bits = 32 * parts.layout.size
    for link in parts.links:
        found = link.bits(parts.layout.size)
        bits = bits if found is None else found
    return bits


def _round(outcome: Outcome, seen: Seen, links: dict[str, Any], normal: Any, t: int) -> dict[str, Any]:
    """What our run says of a round, by the names of the file."""
    r, w = outcome.rounds[t]
    row: dict[str, Any] = outcome.rows[t]
    weights, passed, names = r.weights[:, 0], seen.updates[t], {link["name"] for link in _links(links, len(w))}
    arrived = passed[next(reversed(passed))][1] if passed else r.W - r.w
    # after an attack, before the links that the file lists
    sent = next((before for name, (before, _) in passed.items() if name in names), arrived)
    ours = {
        "lr": r.lr,
        "weights": weights,
        "steps": r.steps[:, 0],
        "norms": torch.linalg.vector_norm(sent, dim=1),
        "bits": torch.full_like(weights, _bits(outcome)),
        "kept": torch.ones_like(weights) if seen.kept[t] is None else seen.kept[t],
        "step_norm": torch.linalg.vector_norm(r.average() - weights @ (r.W - arrived)),
        "cloud_norm": torch.linalg.vector_norm(w),
        "local_models": r.trained.W,
        "arrived": arrived,
        "compression_error": row.get("compression_error"),
        "bound": row.get("clip_bound"),
        "clipped": row.get("clipped"),
    }
    if "quantile" in links.get("clip", {}):
        # the share within the bound is not recorded where it has noise, but it follows from how the bound moves
        clip = links["clip"]
        ours["inside"] = clip["quantile"] - math.log(seen.bounds[t] / row["clip_bound"]) / clip["rate"]
    if NOISE in passed:
        before, after = passed[NOISE]
        lengths = torch.linalg.vector_norm(before, dim=1, keepdim=True)
        before = before * (row["clip_bound"] / lengths).clamp(
            max=1
        )  # the bound applies again: a compressor may lengthen
        privacy = links["privacy"]
        Z = torch.linalg.vector_norm(privacy["denominator"] * after - len(after) * before, dim=1).mean()
        ours["noise_norm"] = Z
        independent = privacy["mechanism"] == "independent"
        ours["z"] = Z / (row["clip_bound"] * np.linalg.norm(normal[t])) if independent else privacy["z"]
    return ours
