"""From cases to kernels: grouped products, collectives, attention of every kind, and what is left uncovered."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearpeak.bounds.case_bound import case_bound
from nearpeak.errors import NotModelledError
from nearpeak.ops import case
from nearpeak.prediction.case_prediction import predict_case
from nearpeak.prediction.kernel_model import Setting
from nearpeak.simulation.engine.device_work import Copy
from nearpeak.simulation.engine.event_loop import simulate
from nearpeak.simulation.lowering import kernels_of
from nearpeak.simulation.lowering.collective import RING_SM_COUNT
from nearpeak.simulation.machine_from_target import machine_of
from nearpeak.simulation.step_simulation import simulate_case
from nearpeak.targets import target_of

H100 = target_of("h100_sxm")
PLAIN = Setting(is_corrected=False)
GOLDEN = Path(__file__).parents[2] / "golden" / "work"
UNCOVERED = {("gemm", "int64")}
"""Products that no unit of a GPU forms: everything else of the golden table runs."""


def seconds(one, target=H100, setting=None):
    return simulate_case(one, target, *(() if setting is None else (setting,))).end_ps * 1e-12


def golden_cases():
    rows = {
        (row["op"], row["phase"], row["arguments"])
        for path in sorted(GOLDEN.glob("*.csv"))
        for row in csv.DictReader(path.open())
    }
    return [case(op, phase, **json.loads(arguments)) for op, phase, arguments in sorted(rows)]


def test_every_operator_runs_and_none_beats_its_bound():
    refused = set()
    for one in golden_cases():
        try:
            found = seconds(one)
        except NotModelledError:
            refused.add((one.op, dict(one.dtypes)["dtype"]))
            continue
        assert found >= case_bound(one, H100).time_s * 0.999, one
    assert refused == UNCOVERED


def experts(load="", m=4096, phase="forward"):
    return case(
        "grouped_gemm",
        phase,
        m=m,
        n=4096,
        k=2048,
        groups=16,
        dtype="bf16",
        **({"load": load} if load else {"touched_groups": 16}),
    )


def test_tiles_of_unequal_groups_take_more_waves():
    even = "counts rows=" + ",".join(["256"] * 16)
    ragged = "counts rows=" + ",".join(["257"] * 15 + ["241"])
    lone = "counts rows=" + ",".join(["4096"] + ["0"] * 15)
    times = {name: seconds(experts(load)) for name, load in (("even", even), ("ragged", ragged), ("lone", lone))}
    assert times["ragged"] > 1.05 * times["even"]
    assert times["lone"] < times["even"]  # one matrix of weights in place of sixteen


def test_tiles_of_groups_run_in_whole_waves_of_the_engine():
    launch, tiles = kernels_of(experts(), H100)
    assert launch.cta_count == 1
    assert tiles.cta_count > H100.sm_count
    each = simulate(machine_of(H100), [tiles]).end_ps / -(-tiles.cta_count // H100.sm_count)
    assert each == pytest.approx(sum(max(phase.fixed_ps, 1) for phase in tiles.phases), rel=0.02)


def test_a_skewed_load_takes_longer_where_every_expert_has_rows():
    uniform, zipf = (seconds(experts(f"{kind} top_k=2 seed=1", m=256)) for kind in ("uniform", "zipf exponent=1.5"))
    assert zipf > uniform
    assert seconds(experts("zipf exponent=1.5 top_k=2 seed=1", m=256)) == zipf


def test_a_layer_of_experts_is_routing_products_and_what_is_between_them():
    one = case("grouped_gemm", m=2048, n=6144, k=2048, groups=8, dtype="bf16", touched_groups=8)
    names = [kernel.name for kernel in kernels_of(one, H100, Setting(expert_matrices_count=3))]
    assert names == ["routing", "passes", "up launch", "up", "down"]


def test_gradients_of_groups_are_two_products_one_of_unequal_depth():
    loads = [",".join(["256"] * 16), ",".join(["1024"] * 4 + ["0"] * 12), ",".join(["4081"] + ["1"] * 15)]
    even, few, skewed = (experts(f"counts rows={rows}", phase="backward") for rows in loads)
    names = [kernel.name for kernel in kernels_of(even, H100)]
    assert names == ["grad a launch", "grad a", "grad b"]
    assert 1.5 < seconds(even) / seconds(experts("counts rows=" + ",".join(["256"] * 16))) < 4
    assert seconds(few) < seconds(even)
    assert seconds(skewed) > seconds(few)  # tiles of 4081 rows beside tiles of one


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_groups_run_in_formats_without_a_kernel_of_their_own(dtype):
    one = case("grouped_gemm", m=512, n=256, k=256, groups=4, dtype=dtype, touched_groups=4)
    assert seconds(one) > 0


def reduced(elements, ranks=8, **kwargs):
    return case("collective", elements=elements, ranks=ranks, dtype="fp16", **{"kind": "all_reduce"} | kwargs)


def test_a_collective_never_outruns_its_link_and_holds_its_multiprocessors():
    rate = machine_of(H100).pool_bytes_per_s["link_out"]
    for elements in (2**12, 2**18, 2**24, 2**28):
        (kernel,) = kernels_of(reduced(elements), H100)
        assert kernel.cta_count == RING_SM_COUNT
        assert seconds(reduced(elements)) >= 2 * elements * 2 * 7 / 8 / rate
    latencies = [seconds(reduced(2**12, ranks)) for ranks in (2, 4, 8)]
    assert latencies == sorted(latencies)
    assert seconds(reduced(2**12, 1)) < latencies[0]


def test_a_product_beside_a_collective_waits_for_its_multiprocessors_only():
    (ring,), (product,) = (
        kernels_of(reduced(2**26), H100),
        kernels_of(case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), H100),
    )
    machine = machine_of(H100)
    both = simulate(machine, [ring, replace(product, queue="1")])
    alone = simulate(machine, [product]).end_ps
    assert both.span(product.name).end_ps > alone
    assert both.end_ps < simulate(machine, [ring]).end_ps + alone


def test_two_collectives_share_the_link():
    (ring,) = kernels_of(reduced(2**27), H100)
    slow = target_of("h100_sxm", ['link.nvlink.bandwidth="45 GB/s"'])
    machine = machine_of(slow)
    one = simulate(machine, [ring]).end_ps
    two = simulate(machine, [ring, replace(ring, name="other", queue="1")]).end_ps
    assert two == pytest.approx(2 * one, rel=0.05)


@pytest.mark.parametrize(
    "kind", ["all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter", "send"]
)
def test_every_kind_of_collective_is_near_the_form(kind):
    one = reduced(2**24, kind=kind)
    assert seconds(one) == pytest.approx(predict_case(one, H100, PLAIN).time_s, rel=0.15)


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_copies_to_and_from_the_host_take_a_copy_engine(direction):
    one = case("transfer", elements=2**26, dtype="fp32", direction=direction)
    (copy,) = kernels_of(one, H100)
    assert isinstance(copy, Copy)
    assert seconds(one) == pytest.approx(predict_case(one, H100, PLAIN).time_s, rel=0.01)


ATTENTION = {"batch": 2, "heads": 16, "q": 1024, "kv": 1024, "dim": 64, "dtype": "bf16"}


def test_masks_and_dropout_cost_what_they_read_and_draw():
    plain = seconds(case("attention", **ATTENTION))
    masked = seconds(case("attention", **ATTENTION, mask="float", mask_elements=2 * 16 * 1024 * 1024))
    assert masked > plain
    (dropping,) = kernels_of(case("attention", **ATTENTION, dropout=True), H100)
    assert any(phase.pipe_s.get("vector", 0) > 0 for phase in dropping.phases)
    assert seconds(case("attention", **ATTENTION, dropout=True)) >= plain
    live = 2 * 16 * 1024 * 256
    block = case(
        "attention", **ATTENTION, mask="known", live_pairs=live, live_keys=2 * 16 * 1024, live_queries=2 * 16 * 1024
    )
    assert seconds(block) < plain


def test_gradients_of_attention_cost_two_to_four_times_the_result():
    long = ATTENTION | {"q": 4096, "kv": 4096, "dim": 128}
    assert 2 < seconds(case("attention", "backward", **long)) / seconds(case("attention", **long)) < 4


def test_attention_in_fp32_is_products_and_a_softmax():
    names = [kernel.name for kernel in kernels_of(case("attention", **ATTENTION | {"dtype": "fp32"}), H100)]
    assert names == ["gemm", "softmax", "gemm"]


def test_complex_products_are_four_real_ones():
    extents = {"m": 2048, "n": 2048, "k": 2048}
    ratio = seconds(case("gemm", **extents, dtype="complex64")) / seconds(case("gemm", **extents, dtype="fp32"))
    assert ratio == pytest.approx(4, rel=0.2)


def test_what_does_no_work_takes_no_time():
    assert kernels_of(case("gemm", m=0, n=8, k=8, dtype="bf16"), H100) == ()


def test_lowerings_agree_with_forms_where_nothing_is_shared():
    image = {"batch": 32, "in_channels": 64, "out_channels": 64, "h": 56, "w": 56, "kh": 3, "kw": 3}
    rows = {"softmax": {"rows": 8192, "columns": 4096}, "rms_norm": {"rows": 8192, "hidden": 4096}, "conv": image}
    for op, axes in rows.items():
        one = case(op, **axes, dtype="fp16")
        assert seconds(one) == pytest.approx(predict_case(one, H100, PLAIN).time_s, rel=0.05), op
    assert np.isfinite(seconds(case("adamw", parameters=10**8, dtype="fp32")))
