"""Ways to share a device: what each policy gives a stream, what it costs, and why two streams did not overlap."""

from dataclasses import replace

import pytest

from nearpeak.api.case_words import case_of
from nearpeak.bounds.terms.unit_rates import vector_rate
from nearpeak.errors import SpecError
from nearpeak.ops import case
from nearpeak.simulation.frame_work import Frame
from nearpeak.simulation.machine_from_target import machine_of
from nearpeak.simulation.scenario import Scenario, Stream, share
from nearpeak.simulation.scenario_file import scenario_of
from nearpeak.targets import target_of

H100 = target_of("h100_sxm")
LARGE = case("gemm", m=8192, n=8192, k=8192, dtype="bf16")
SMALL = case("gemm", m=256, n=1024, k=1024, dtype="bf16")
CAMERA = Stream(name="camera", cases=(SMALL,), count=5, start_s=1e-4, period_s=5e-4, deadline_s=3e-4, priority=1)
BATCH = Stream(name="batch", cases=(LARGE,), count=2)


def camera(policy, *others, **kwargs):
    return share([replace(CAMERA, **kwargs), *(others or (BATCH,))], H100, policy).streams[0]


def test_an_urgent_context_waits_for_saved_state_one_that_drains_for_blocks():
    preempts, drains, turns = (camera(policy) for policy in ("preempts", "drains", "turns"))
    state_s = 132 * (256 + 228) * 1024 / (0.93 * 3.35e12)
    assert preempts.p99_s == pytest.approx(preempts.alone_s + state_s, rel=0.02)
    assert drains.p99_s > 5 * preempts.p99_s
    assert (preempts.missed_count, turns.missed_count > 0) == (0, True)


def test_atoms_bound_how_long_others_wait():
    whole, atoms = (share([CAMERA, replace(BATCH, atoms_count=n)], H100, "priorities") for n in (1, 8))
    assert atoms.streams[0].p99_s < 0.3 * whole.streams[0].p99_s
    assert atoms.end_s < 1.05 * whole.end_s


@pytest.mark.parametrize(("ratio", "slots"), [(0.25, 34), (0.5, 66), (1.0, 132)])
def test_an_mps_client_has_pairs_of_multiprocessors_up_to_its_share(ratio, slots):
    found = share([replace(BATCH, share_ratio=ratio)], H100, "mps", records=True)
    assert max(batch.sms.bit_count() for batch in found.run.batches) == slots


def test_green_contexts_come_in_eights_and_must_fit():
    found = share([replace(CAMERA, sm_count=20), replace(BATCH, sm_count=100)], H100, "masks", records=True)
    used = {name: max(b.sms.bit_count() for b in found.run.batches if name in b.name) for name in ("camera", "batch")}
    assert used["batch"] == 104
    assert used["camera"] <= 24
    with pytest.raises(SpecError, match="132 multiprocessors, got requests for camera 64, batch 104"):
        share([replace(CAMERA, sm_count=60), replace(BATCH, sm_count=100)], H100, "masks")


def test_slices_are_documented_profiles_with_memory_of_their_own():
    copied = case("elementwise", elements=2**27, function="relu", dtype="bf16")
    apart = [Stream(name=name, cases=(copied,), slice=part) for name, part in (("a", "1g.10gb"), ("b", "3g.40gb"))]
    found = share(apart, H100, "slices", records=True)
    assert found.streams[0].p99_s == pytest.approx(8 * found.streams[0].alone_s, rel=0.1)
    assert found.streams[1].p99_s == pytest.approx(2 * found.streams[1].alone_s, rel=0.1)
    assert {batch.sms.bit_count() for batch in found.run.batches if batch.name.startswith("a")} == {16}
    with pytest.raises(SpecError, match="more than the whole memory"):
        share([replace(one, slice="4g.40gb", name=f"{one.name}{i}") for i, one in enumerate([*apart, apart[0]])],
              H100, "slices")  # fmt: skip
    with pytest.raises(SpecError, match="no MIG profile '9g'; there are"):
        share([replace(CAMERA, slice="9g")], H100, "slices")


def test_copies_overlap_products_and_each_other_with_two_engines_only():
    copying = Stream(name="copy", cases=(SMALL,), count=4, input_bytes=64e6, output_bytes=64e6)
    one, two = (share(Scenario(streams=(copying,), copy_engine_count=n), H100, "streams").end_s for n in (1, 2))
    assert one == two  # one stream waits for itself
    pair = tuple(replace(copying, name=name) for name in ("x", "y"))
    one, two = (share(Scenario(streams=pair, copy_engine_count=n), H100, "streams") for n in (1, 2))
    assert one.end_s == pytest.approx(16 * 1e-3, rel=0.02)
    assert two.end_s < 0.75 * one.end_s
    assert any("copy engine was busy" in reason for reason in one.streams[1].reasons)


def test_frames_are_drawn_beside_computing_or_in_turns_with_it():
    frame = Frame(pixels_count=8 * 1056 * 256, flop_count=2000, bytes_per_pixel_count=4)
    screen = Stream(name="screen", frame=frame, count=3, period_s=1e-3)
    beside, turns = (share([BATCH, screen], H100, policy) for policy in ("masks", "turns"))
    (pair,), (taken,) = beside.overlaps, turns.overlaps
    assert pair.both_s == pytest.approx(pair.most_s)
    assert (taken.both_s, taken.reason) == (0.0, "another context had the turn")
    shaded_s = frame.pixels_count * 2000 / vector_rate(H100, "fp32")[1]
    assert beside.streams[1].alone_s == pytest.approx(shaded_s + 8 * 2e-6, rel=0.01)


@pytest.mark.parametrize(("launch", "count"), [("eager", 12), ("graph", 12)])
def test_a_job_of_many_kernels_is_bound_by_its_host_unless_a_graph_submits_it(launch, count):
    tiny = case("elementwise", elements=100, function="relu", dtype="bf16")
    found = share([Stream(name="s", cases=(tiny,) * count, launch=launch)], H100, "streams").streams[0]
    costs = machine_of(H100).costs
    host, kernels_s = costs.graph_ps, found.alone_s
    if launch == "eager":  # each kernel is over before the host has launched the next one
        host, kernels_s = count * costs.launch_ps, found.alone_s / count
    assert found.median_s == pytest.approx((host + costs.submit_ps) * 1e-12 + kernels_s, rel=1e-6)


FILE = """
copy_engines = 1
[[stream]]
name = "camera"
cases = ["gemm m=256 n=1024 k=1024 dtype=bf16"]
input = "2 MB"
share = 25
atoms = 2
[[stream]]
name = "screen"
frame = {pixels = "64x64", flop = 100, bytes = 4}
"""


def read(tmp_path, text):
    (tmp_path / "s.toml").write_text(text)
    return scenario_of(tmp_path / "s.toml", lambda words: case_of(words, "simulate"))


def test_a_file_says_what_streams_copy_draw_and_may_use(tmp_path):
    found = read(tmp_path, FILE)
    first, second = found.streams
    assert (found.copy_engine_count, first.input_bytes, first.share_ratio, first.atoms_count) == (1, 2e6, 0.25, 2)
    assert second.frame == Frame(pixels_count=4096, flop_count=100, bytes_per_pixel_count=4)


@pytest.mark.parametrize(("old", "new", "message"), [
    ("copy_engines = 1", "copy_engines = 3", "1 or 2"), ("share = 25", "share = 250", "at most 100"),
    ("atoms = 2", "atoms = 0", "at least 1"), ('"64x64"', '"64xa"', "1920x1080"),
    ("flop = 100", 'flop = "a"', "number"),
    ("flop = 100, bytes = 4", "flop = 0, bytes = 0", "take no time"), ('"2 MB"', '"2 s"', "stream camera"),
    ('"screen"', '"camera"', "same name"), ("share = 25", 'slice = 3', "a text is right"),
    ("share = 25", 'launch = "fast"', "eager, graph or nothing"), ("share = 25", 'deadline = "0 s"', "deadline"),
])  # fmt: skip
def test_what_a_file_says_wrong_is_named(tmp_path, old, new, message):
    with pytest.raises(SpecError, match=message):
        read(tmp_path, FILE.replace(old, new, 1))
