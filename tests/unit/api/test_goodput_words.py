"""Goodput in words: every policy can be stated, and a word that is wrong, or missing, is named in one line."""

import pytest

from nearpeak.api.training.goodput_words import goodput_in_words
from nearpeak.errors import SpecError

BASE = "checkpoint=60s,restart=10min,mtbf=3.1h"


def shares(words):
    return {name: share.mean for name, share in goodput_in_words(f"{BASE},{words}", 128).shares.items()}


def test_policies_are_stated_in_words():
    alone = shares("repair=1d,hardware=1,horizon=10d")
    assert alone["idle"] == 0 or alone["idle"] > 0.5, "without spares the job waits for a day after each failure"
    assert shares("repair=1d,spares=100%,horizon=10d")["idle"] < alone["idle"]
    shrunk = shares("repair=1d,replicas=128,least=64,reshape=2min,horizon=10d")
    assert shrunk["degraded"] > 0 == shrunk["idle"]
    assert shares("peer_interval=1min,peer_checkpoint=0.5s,peer_restart=3min")["rework"] < 0.01
    assert shares("foreseen=100%,migrate=1min")["rework"] == 0
    assert shares("spot=0.3,bid=0.3,sigma=0.4,reversion=6h,notice=2min,horizon=10d")["idle"] > 0.1
    assert shares("background=2min,contention=5%")["checkpoint"] > 0


def test_without_a_rate_that_of_the_prior_is_taken():
    report = goodput_in_words("checkpoint=60s,restart=10min", 16_384)
    assert report.failure_interval_s / 3600 == pytest.approx(3.09, abs=0.01)
    assert "Llama 3" in report.failure_source
    assert goodput_in_words(BASE, 8).failure_source == "stated by the caller"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("checkpoint=60s", "needs restart=TIME"), ("restart=60s", "needs checkpoint=TIME"),
        (f"{BASE},mtbf=3h", "stands twice"), (f"{BASE},spares=2", "needs repair=TIME"),
        (f"{BASE},intervall=3h", "did you mean interval"), (f"{BASE},interval=3", "is not a time"),
        (f"{BASE},spares=1.5,repair=1h", "whole number"), (f"{BASE},foreseen=20%", "needs migrate"),
        (f"{BASE},foreseen=2,migrate=1s", "shares from 0 to 1"), (f"{BASE},spot=0.3", "needs bid=NUMBER"),
        (f"{BASE},peer_interval=60s", "needs peer_checkpoint=TIME"), (f"{BASE},contention=x", "is not a number"),
        (f"{BASE},replicas=4,least=9,repair=1h", "no size to shrink to"), (f"{BASE},horizon=0s", "above 0"),
        ("checkpoint=60s,restart=1h,mtbf=1e-9s", "give a horizon of at most"), ("", "not known"),
    ],
)  # fmt: skip
def test_words_that_are_wrong_or_missing_are_one_line(words, message):
    with pytest.raises(SpecError, match=r"^[^\n]*$") as error:
        goodput_in_words(words, 128)
    assert message in str(error.value)
