"""Two queues replayed: closed forms, and what must hold of any timeline."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nearpeak.core.traces.executed_run import DEVICE, NOTHING, OWN, QueueItem
from nearpeak.core.traces.finding_report import Change
from nearpeak.traces.executed.queue_replay import begun_ns, merged, replayed_ns

TIMES = st.integers(0, 50_000)


def item(before=0, call=0, device=0, lane=0, waits=NOTHING, after=(), lag=0):
    lane = lane if device else NOTHING
    return QueueItem(
        0,
        0 if device else NOTHING,
        "kernel" if device else "host",
        before,
        call,
        device,
        lag,
        lane,
        waits,
        after,
        0,
        0,
        0,
    )


ITEMS = st.lists(
    st.builds(item, before=TIMES, call=TIMES, device=TIMES, lane=st.integers(0, 2), waits=st.sampled_from([NOTHING,
    OWN, DEVICE])),
    min_size=1, max_size=40,
)  # fmt: skip


def test_a_deep_queue_takes_the_longer_of_both_sums():
    host = [item(before=10, device=2) for _ in range(100)]
    device = [item(before=2, device=10) for _ in range(100)]
    assert replayed_ns(host, 5) == 100 * 10 + 5 + 2
    assert replayed_ns(device, 5) == 2 + 5 + 100 * 10


def test_waiting_after_each_takes_the_sum_of_both():
    assert replayed_ns([item(before=10, device=20, waits=OWN) for _ in range(50)], 5) == 50 * (10 + 5 + 20)


def test_work_on_another_stream_waits_for_what_it_depends_on():
    assert replayed_ns([item(device=30), item(device=10, lane=1, after=(0,))], 0) == 40
    assert replayed_ns([item(device=30), item(device=10, lane=1)], 0) == 30


def test_a_full_queue_stops_the_host():
    deep = [item(before=1, device=100) for _ in range(2000)]
    assert replayed_ns([*deep, item(before=1)], 0) == 1 + 2000 * 100


@settings(max_examples=2000, deadline=None)
@given(ITEMS, TIMES)
def test_the_step_lies_between_its_longest_queue_and_the_sum_of_all(items, latency):
    device = [one for one in items if one.lane != NOTHING]
    loads = [sum(one.device_ns for one in device if one.lane == lane) for lane in range(3)]
    host = sum(one.before_ns + one.call_ns for one in items)
    found = replayed_ns(items, latency)
    assert max(host, *loads) <= found <= host + sum(loads) + latency * len(device)


@settings(max_examples=2000, deadline=None)
@given(ITEMS, st.data())
def test_less_work_never_takes_longer_and_all_changes_at_once_gain_at_least_each(items, data):
    places = data.draw(st.lists(st.integers(0, len(items) - 1), min_size=1, max_size=6, unique=True))
    changes = [Change(place, before_ns=0, call_ns=0, device_ns=0, waits=NOTHING) for place in places]
    whole, each = replayed_ns(items, 100), [replayed_ns(items, 100, [change]) for change in changes]
    together = replayed_ns(items, 100, merged(changes, items))
    assert all(together <= one <= whole for one in each)


@settings(max_examples=1000, deadline=None)
@given(ITEMS, st.integers(2, 9))
def test_twice_as_slow_everything_takes_twice_as_long(items, factor):
    slower = [
        one._replace(before_ns=one.before_ns * factor, call_ns=one.call_ns * factor, device_ns=one.device_ns * factor)
        for one in items
    ]
    assert replayed_ns(slower, 700 * factor) == factor * replayed_ns(items, 700)


def test_work_whose_calls_were_not_recorded_fills_no_queue():
    apart = [item(device=10, lane=lane % 2, lag=1000 * lane)._replace(call=NOTHING) for lane in range(3000)]
    starts = []
    ready = {0: 0, 1: 0}
    for one in apart:
        starts.append(ready[one.lane] + one.lag_ns)
        ready[one.lane] = starts[-1] + 10
    assert replayed_ns(apart, 0) == max(ready.values())


@settings(max_examples=500, deadline=None)
@given(ITEMS, TIMES)
def test_the_last_work_ends_when_the_replay_ends_or_the_host_goes_on(items, latency):
    begun = [one for one in begun_ns(items, latency) if one is not None]
    last = max((one.end_ns for one in begun), default=0)
    assert last <= replayed_ns(items, latency)
    assert all(one.called_ns <= one.start_ns <= one.end_ns for one in begun)
