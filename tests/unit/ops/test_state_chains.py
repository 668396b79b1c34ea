"""The least products of a linear recurrence: no mixture of states and pairs of tokens needs fewer."""

import itertools

import pytest

from nearpeak.ops.shared.state_chains import chain


def mixtures(tokens, write, read, pair, *, begun, ended, strict):
    """FLOP of every choice of tokens that are not written to the state or do not read it."""
    subsets = [set(s) for n in range(tokens + 1) for s in itertools.combinations(range(tokens), n)]
    for unwritten, unread in itertools.product(subsets, subsets):
        if (ended and unwritten) or (begun and unread):
            continue  # the first state must reach every token, and every token the final state
        pairs = sum(
            s in unwritten or t in unread for t in range(tokens) for s in range(t + (not strict))
        )  # fmt: skip
        yield write * (tokens - len(unwritten)) + read * (tokens - len(unread)) + pair * pairs


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("begun", "ended"), itertools.product([False, True], repeat=2))
@pytest.mark.parametrize(("write", "read", "pair"), [(8, 8, 3), (10, 4, 3), (4, 13, 5), (2, 2, 9), (30, 30, 1)])
def test_no_mixture_of_forms_is_below_the_chain(write, read, pair, begun, ended, strict):
    for tokens in range(1, 6):
        least = min(mixtures(tokens, write, read, pair, begun=begun, ended=ended, strict=strict))
        found = chain(tokens, write, read, pair, begun=begun, ended=ended, strict=strict)
        direct = pair * (tokens * (tokens + 1) // 2 - strict * tokens) + (begun * read + ended * write) * tokens
        assert found <= min(least, direct)


@pytest.mark.parametrize(("begun", "ended"), [(False, True), (True, False)])
def test_the_chain_is_reached_where_one_end_is_open(begun, ended):
    for tokens in range(1, 6):
        options = {"begun": begun, "ended": ended, "strict": False}
        assert chain(tokens, 8, 8, 3, **options) == min(mixtures(tokens, 8, 8, 3, **options))
