"""Whether training has diverged in a round, and at whose fault."""

import torch

from fedtide.federation.types import RoundContext
from fedtide.world.clients import ClientNames


def has_diverged(r: RoundContext) -> bool:
    """Whether the new model is not finite, or the mean training loss is not or exceeds ``divergence_threshold``.

    An aggregation rule leaves out updates that are not finite and survives a minority of others. With one, losses count where
    those of most others do, or if all of several updates are left out.
    """
    if not bool(torch.isfinite(r.state.w).all()):
        return True
    if r.parts.robust:
        astray, lost = {*_astray(r)}, {*not_finite(r)}
        left = len(r.plan.ids) - len(lost)
        return 2 * len(astray - lost) > left if left else len(lost) > 1
    return not r.train_loss <= r.parts.settings.divergence_threshold


def reason(r: RoundContext) -> str:
    """What has diverged, in a line that names the participants at fault, unless all are, and a way out."""
    line, cure = f"diverged in round {r.plan.t + 1}: training loss {r.train_loss:g}", "try a smaller local.lr"
    fault = sorted({*_astray(r), *not_finite(r)})
    if 0 < len(fault) < r.trained:
        names = ClientNames.of(r.parts.timeline, r.parts.data).listed([r.plan.ids[row] for row in fault])
        line += f"; losses or updates of {names} are not finite or too large"
    attack, rule = r.parts.settings.attack.name, "a robust rule such as aggregation=median"
    if not r.parts.robust and attack != "none":
        cure = f"attack {attack} is in force and the mean counts every update: try {rule}, or a smaller local.lr"
    elif not r.parts.robust and 0 < 2 * len(fault) <= r.trained:
        cure = f"examine the data there, or try {rule}"
    return f"{line}; {cure}"


def not_finite(r: RoundContext) -> list[int]:
    """Rows of the participants whose updates, as they arrive, are not finite."""
    finite = r.share.gathered(r.received.isfinite().all(1, keepdim=True).to(r.received))
    return (finite[:, 0] == 0).nonzero()[:, 0].tolist()


def _astray(r: RoundContext) -> list[int]:
    """Rows of the participants whose training loss is not finite or exceeds ``divergence_threshold``."""
    pairs, most = zip(r.cohort.plan.steps, r.losses.tolist(), strict=True), r.parts.settings.divergence_threshold
    return [row for row, (steps, loss) in enumerate(pairs) if steps and not loss <= most]
