from fedtide import Algorithm, AlgorithmSettings, Local, Round, Tunable


class FedShrink(Algorithm):
    """FedAvg whose clients are pulled toward the mean of the models they last sent."""

    class Settings(AlgorithmSettings):
        name: str = "fedshrink"
        pull: float = Tunable(0.1, low=0.01, high=1.0, log=True, ge=0, description="strength of the pull")

    client = ("last",)  # a vector per client, zero for a client never seen

    def local(self, r: Round) -> Local:
        known = r.seen * r.client.last + (1 - r.seen) * r.w
        return Local(pull=self.settings.pull, toward=r.mean(known))

    def finish(self, r: Round):
        r.client.last = r.W
        return r.average()
