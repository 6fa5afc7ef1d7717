"""FedACG: its momentum at a session's start."""

from support import deal, largest_gap, timeline, trajectory, vectors


def test_a_kept_momentum_is_that_of_the_session_before() -> None:
    """With momentum kept and the model going on, a session change is none; without, it is one."""
    worlds = [timeline(deal((5, 2, 7)), [{0: 0, 1: 1, 2: 2}] * 4, session_of_round=s) for s in ([0, 0, 1, 1], [0] * 4)]
    for mode in ("keep", "reset"):
        client_state = {"on_session_start": mode}
        parted, whole = (trajectory("fedacg", world, vectors(), client_state=client_state)[0] for world in worlds)
        assert (largest_gap(parted, whole) == 0) is (mode == "keep")
