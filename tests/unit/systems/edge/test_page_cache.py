"""Page cache: the closed form against simulated caches, limits, and the inverse."""

import pytest

from nearpeak.errors import SpecError
from nearpeak.systems.edge.page_cache import cache_ratio_of, hit_ratio, random_epochs, simulated_hits

ITEMS = 4000


@pytest.mark.parametrize(("share", "golden"), [(0.25, 0.0342), (0.5, 0.1534), (0.75, 0.4034), (0.9, 0.6697)])
def test_random_order_hits_as_derived(share, golden):
    assert hit_ratio(share) == pytest.approx(golden, abs=5e-5)
    hits = simulated_hits(random_epochs(ITEMS, 6, seed=3), round(share * ITEMS), "lru")
    assert sum(hits[1:]) / 5 == pytest.approx(golden, abs=0.01)


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_same_order_and_kept_pages(share):
    epochs = random_epochs(ITEMS, 3, seed=0, order="same")
    assert simulated_hits(epochs, round(share * ITEMS), "lru") == [0.0, 0.0, 0.0]
    assert hit_ratio(share, "same") == 0
    for order in ("same", "random"):
        kept = simulated_hits(random_epochs(ITEMS, 3, seed=0, order=order), round(share * ITEMS), "minio")
        assert kept == [0.0, share, share]
    assert hit_ratio(share, replacement="minio") == share


@pytest.mark.parametrize("replacement", ["lru", "minio", "two_list"])
def test_limits_of_no_and_whole_cache(replacement):
    epochs = random_epochs(300, 4, seed=1)
    assert simulated_hits(epochs, 0, replacement) == [0, 0, 0, 0]
    assert simulated_hits(epochs, 300, replacement) == [0, 1, 1, 1]


def test_two_lists_lie_between():
    hits = simulated_hits(random_epochs(ITEMS, 8, seed=2), ITEMS // 2, "two_list")
    assert hit_ratio(0.5) < sum(hits[3:]) / 5 <= 0.5


@pytest.mark.parametrize(("order", "replacement"), [("random", "lru"), ("random", "minio"), ("same", "minio")])
def test_inverse_finds_the_share(order, replacement):
    shares = [place / 20 for place in range(21)]
    hits = [hit_ratio(share, order, replacement) for share in shares]
    assert hits == sorted(hits)
    for share, hit in zip(shares, hits, strict=True):
        assert cache_ratio_of(hit, order, replacement) == pytest.approx(share, abs=1e-6)


def test_impossible_caches_are_refused():
    for share in (-0.1, float("nan")):
        with pytest.raises(SpecError, match="share"):
            hit_ratio(share)
    with pytest.raises(SpecError, match="fifo"):
        simulated_hits([[1]], 1, "fifo")
