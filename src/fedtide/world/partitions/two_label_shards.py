"""Two batches of labels per client."""

import numpy as np

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import generator
from fedtide.world.partitions.base import Partition, class_pools, hand_out, rarest, require_at_most


class TwoLabelShards(Partition):
    """Two different batches of labels per client, every batch cut evenly among the clients that hold it.

    A batch is one label, or 10 labels if there are 100 or more (and 10 divides their number). With C batches and a
    multiple of C clients, client i holds batches i mod C and (i mod C + 1 + floor(i / C) mod (C - 1)) mod C, so that all
    have equally many holders; with another number of clients the batches are dealt at random, as evenly as possible.
    """

    scope = "population"

    class Settings(PluginSettings):
        name: str = "two_label_shards"

    settings: Settings

    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        width = 10 if num_classes >= 100 and num_classes % 10 == 0 else 1
        batches = num_classes // width
        if batches < 2 or 2 * num_clients < batches:
            raise SettingsError(
                f"num_clients = {num_clients} is too small: partition two_label_shards requires at least 2 batches "
                f"of labels (there are {batches}) and at least {-(-batches // 2)} clients to hold them all"
            )
        fewest = rarest(labels, range(num_classes))
        require_at_most("num_clients", num_clients, fewest * batches // 2, f"the rarest class has {fewest} samples")

        rng = generator(seed, "partition.slots", group)
        if num_clients % batches:
            wanted = _random(num_clients, batches, rng)
        else:
            turn, first = np.divmod(np.arange(num_clients), batches)
            wanted = np.stack([first, (first + 1 + turn % (batches - 1)) % batches], axis=1)
        holders: list[list[int]] = [[] for _ in range(batches)]
        for client, pair in enumerate(wanted.tolist()):
            for batch in pair:
                holders[batch].append(client)
        batch_of_label = np.empty(num_classes, dtype=np.int64)
        batch_of_label[rng.permutation(num_classes)] = np.arange(num_classes) // width
        pools = class_pools(labels, range(num_classes), generator(seed, "partition.pools", group))
        shares = ((pool, holders[batch]) for pool, batch in zip(pools, batch_of_label.tolist(), strict=True))
        return hand_out(shares, num_clients)


def _random(num_clients: int, batches: int, rng: np.random.Generator) -> Ints:
    """The two batches of each client, int64 [clients, 2], dealt at random.

    A client with one batch twice swaps one of them with the next client that lacks it.
    """
    wanted = rng.permutation(np.arange(2 * num_clients) % batches).reshape(num_clients, 2)
    for client in np.flatnonzero(wanted[:, 0] == wanted[:, 1]):
        batch = wanted[client, 0]
        if wanted[client, 1] == batch:  # an earlier swap may have separated them
            lacking = (wanted != batch).all(axis=1)
            partner = (client + 1 + np.argmax(np.roll(lacking, -client - 1))) % num_clients
            wanted[[client, partner], 1] = wanted[[partner, client], 1]
    return wanted
