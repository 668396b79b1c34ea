"""The queue that is held in memory has the order and the alerts of its plain definition, on every engine."""

import itertools
import random

import numpy as np
import pytest
from tests.sampling import long
from tests.unit.store.records import ENERGY, random_run, run, samples

from nearpeak.core.history.alert import CLOSED
from nearpeak.errors import SpecError
from nearpeak.history.alert_queue import SHOWN, SORTS, AlertFilter, Queue
from nearpeak.history.alert_triage import NOTHING, act, weights_of
from nearpeak.store import Detector, StoredChange

DAY_NS = 86_400 * 10**9
NOW_NS = 100 * DAY_NS


def plain(alerts, weights, asked):
    """The queue by definition: every alert is looked at, weighed and compared, one after the other."""
    found = []
    for one in alerts:
        weight = weights.get(one.id, NOTHING)
        is_shown = asked.shown in ("all", one.status, "closed" if one.status in CLOSED else "open")
        texts = [text.lower() for text in (one.title, one.rev_hi, one.assignee)]
        has_words = all(any(word.lower() in text for text in texts) for word in asked.words)
        is_owned = asked.owner in ("", one.assignee, *weight.owners)
        is_awake = asked.at_ns is None or (one.snoozed_until_ns or 0) <= asked.at_ns
        if is_shown and has_words and is_owned and is_awake:
            gap = (-(weight.gap_s or 0.0), -(weight.worst_ratio or 0.0), one.id)
            age = (one.created_ns, one.id)
            owner = (not one.assignee, one.assignee, *gap)
            found.append(({"gap": gap, "age": age, "owner": owner}[asked.sort], one.id))
    return [number for _, number in sorted(found)]


def every_question(at_ns=NOW_NS):
    words = ((), ("7",), ("Slower", "a"), ("100%",), ("ÄDA",), ("nobody has this",))
    whose = itertools.product(SHOWN, SORTS, words, ("", "kernels", "Ada"), (None, at_ns))
    return [AlertFilter(shown=a, sort=b, words=c, owner=d, at_ns=e) for a, b, c, d, e in whose]


def assert_same(queue, store, count=60):
    """The queue answers a fixed sample of `count` questions as its definition does."""
    alerts, weights = store.findings.alerts(), weights_of(store.browsing.members())
    questions = every_question()
    for asked in random.Random(0).sample(questions, min(count, len(questions))):
        assert queue.wanted(asked) == plain(alerts, weights, asked), asked


@pytest.fixture
def alerted(store):
    """Four series of times and one of energies, forty alerts over their changes, in all sorts of states."""
    store.ingest_all([random_run(number) for number in range(4)])
    store.ingest(run(4, [samples("c9", (1.0, 2.0), metric=ENERGY), samples("c1", (5e-3, 6e-3))]))
    numbers = [one.id for one in store.series()]
    store.set_owner(numbers[:2], "kernels")
    draw = np.random.default_rng(3)
    changes = [change for number in numbers for change in store.findings.record_changes(
        number, Detector(name="d"),
        [StoredChange(series=number, order_key=key, rev_lo="a", rev_hi="b", effect_ratio=float(draw.normal(0, 0.1)))
         for key in range(10)],
    )]  # fmt: skip
    for number in range(40):
        mine = draw.choice(changes, int(draw.integers(0, 4)), replace=False) if number else ()
        members = {one.id: "primary" for one in mine}
        title = ("slower", "Slower by 100%", "<b>")[number % 3]
        store.findings.open_alert(f"{title} {number}", members, rev_hi=f"{number:x}a")
    _lived(store, draw)
    return store


def _lived(store, draw):
    for number in range(1, 30):
        action = ("acknowledge", "assign", "expected", "snooze", "invalid", "fixing")[int(draw.integers(0, 6))]
        act(store, number, action, actor="t", assignee=("Ada", "äda")[number % 2], days=30)


@pytest.mark.parametrize("count", [150, long(10_000)])
def test_the_queue_is_that_of_its_definition(alerted, count):
    assert_same(Queue(alerted), alerted, count)


def test_what_happens_to_an_alert_shows_at_once(alerted):
    queue = Queue(alerted)
    queue.wanted(AlertFilter(sort="owner"))
    for number in (31, 32):
        act(alerted, number, "assign", actor="t", assignee="Zoe")
    act(alerted, 33, "invalid", actor="t")
    assert_same(queue, alerted)
    for number in range(100):  # more at once than are looked back at
        alerted.findings.note_alert(1 + number % 3, "seen", actor="t")
        act(alerted, 34, "assign", actor="t", assignee=f"n{number}")
    assert_same(queue, alerted)


def test_a_new_alert_is_weighed_at_once(alerted):
    queue = Queue(alerted)
    alerted.findings.open_alert("slower still", {1: "primary", 2: "related"}, rev_hi="f00")
    assert_same(queue, alerted)


def test_newer_values_count_when_it_is_made_anew(alerted):
    alerted.ingest(run(6, [samples("c1", (9e-3, 9e-3)), samples("c2", (1e-9, 1e-9))]))
    assert_same(Queue(alerted), alerted)


def test_an_empty_store_has_an_empty_queue(store):
    assert Queue(store).wanted(AlertFilter(words=("a",), owner="b", at_ns=1)) == []


@pytest.mark.parametrize("wrong", [{"shown": "half"}, {"sort": "size"}])
def test_what_is_not_known_is_refused(wrong):
    with pytest.raises(SpecError, match="is not known; there are"):
        AlertFilter(**wrong)
