"""Independent availability that differs between clients."""

from fedtide.world.participation._available import Independent, SharedSettings


class Heterogeneous(Independent):
    """Each present client is available independently, with a probability of its own.

    Client i is available in round t iff ``u_i(t) < pi_i``. ``shares`` says where the pi_i come from:

    * ``range``: U(lowest, 1), MIFA's "random" availability (lowest 0.1 or 0.2);
    * ``smallest_label``: ``lowest + (1 - lowest) c / (L - 1)`` with the smallest label c that the client holds, MIFA's
      "adversarial" availability;
    * ``labels``: ``sum_c share_{i,c} u_c`` with the client's label shares over the run, and u_c from U(0, 1) for the first
      half of the classes and U(0, 1/2) for the second, which for an odd number is the larger one (FedAWE's experiments; mean
      about 0.375);
    * ``two_groups``, ``beta``, ``given``.

    MIFA's code reseeds NumPy with round x (seed + 1), so that round 0 is the same for every seed; here it is not.
    """

    class Settings(SharedSettings):
        name: str = "heterogeneous"

    settings: Settings
