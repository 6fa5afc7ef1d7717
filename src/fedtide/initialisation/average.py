"""Mean of earlier sessions."""

import torch

from fedtide.initialisation.base import Boundary, Initialiser, Start


class Average(Initialiser):
    """Each session starts from the plain mean of the final models of all sessions after the pilot."""

    def construct(self, s: Boundary) -> Start:
        """Mean of parameters and buffers, accumulated in float64; a single stored model is returned as it is."""
        count = int(s.store["count"])
        if count == 1:
            return s.store["w"].to(s.w.dtype), s.store["b"].to(s.b.dtype)
        return (s.store["w"] / count).to(s.w.dtype), (s.store["b"] / count).to(s.b.dtype)

    def end(self, s: Boundary) -> None:
        """Add the model of a post-pilot session to the sums."""
        if s.session < s.pilot:
            return
        w, b = s.w.to(torch.float64), s.b.to(torch.float64)
        if "count" in s.store:
            w, b = s.store["w"] + w, s.store["b"] + b
        s.store.update(w=w, b=b, count=s.store.get("count", torch.zeros((), dtype=torch.int64)) + 1)
