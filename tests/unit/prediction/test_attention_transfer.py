import numpy as np
import pytest

from nearpeak.prediction.attention.attention_coefficients import COEFFICIENTS
from nearpeak.prediction.calibration.coefficient_store import _alone
from nearpeak.prediction.kernel_model import USUAL, CaseColumns
from nearpeak.prediction.models.attention import KERNEL_MODEL, transferred
from nearpeak.targets import target_of

NAMES = [coefficient.name for coefficient in COEFFICIENTS]
BF16 = {"dtype": "bf16", "kv_dtype": "bf16"}
SERVED = {"causal": True, "align": "lower_right"}


def coefficients(**changed):
    values = [changed.get(coefficient.name, coefficient.usual_value) for coefficient in COEFFICIENTS]
    return np.array(values)


def rows(device, values=None, **axes):
    shape = {"batch": 1, "heads": 32, "kv_heads": 32, "q": 1, "kv": 1, "dim": 128, **axes}
    columns = {name: np.array([value]) for name, value in shape.items()}
    cases = CaseColumns(op="attention", phase="forward", dtypes=BF16, axes=columns, attributes=SERVED)
    return KERNEL_MODEL.rows(target_of(device), cases, coefficients() if values is None else values, USUAL)


def time_s(device, values=None, **axes):
    return float(rows(device, values, **axes).time_s[0])


def sustained(target, source, is_related, **changed):
    pairs = [(target_of(source), coefficients(**changed))]
    (found,) = transferred(target_of(target), BF16, pairs, is_related=is_related)
    return found[NAMES.index("tensor_ratio")] / (1 + found[NAMES.index("clock_ratio")])


def test_what_a_launch_takes_beyond_its_floor_is_a_number_of_clocks():
    clocks = []
    for name in ("a100_sxm_80gb", "l40s", "h200_sxm"):
        device, launch = target_of(name), rows(name, q=16, kv=16).parts_s[0, KERNEL_MODEL.terms.index("launch")]
        clocks.append((launch - device.launch_floor_s) * device.peaks["tensor.bf16"].clock_hz)
    assert clocks == pytest.approx([clocks[0]] * 3)


def test_long_decode_gains_all_of_the_bandwidth_that_another_board_of_the_kind_has():
    long = {"batch": 256, "kv": 16384, "kv_heads": 8}
    rates = [target_of(name).dram.bandwidth_bytes_per_s for name in ("h100_sxm", "h200_sxm")]
    assert time_s("h100_sxm", **long) / time_s("h200_sxm", **long) == pytest.approx(rates[1] / rates[0], rel=0.03)


def test_exponentials_hide_behind_products_only_where_matrix_units_work_in_the_background():
    wide = {"q": 16384, "kv": 16384, "dim": 256}
    few, many = coefficients(special_ratio=1.0), coefficients(special_ratio=0.5)
    growth = {name: time_s(name, many, **wide) / time_s(name, few, **wide) for name in ("h100_sxm", "a100_sxm_80gb")}
    assert growth["h100_sxm"] < 1.03
    assert growth["a100_sxm_80gb"] > 1.06


def test_one_token_of_latent_attention_is_a_decode_step_on_hopper():
    axes = {"batch": 64, "q": 1, "kv": 1, "dim": 192, "v_dim": 128}
    growth = {
        device: time_s(device, heads=128, kv_heads=128, **axes) / time_s(device, heads=16, kv_heads=16, **axes)
        for device in ("h100_sxm", "h200_sxm", "b200_sxm")
    }
    assert growth["h100_sxm"] < 1.6
    assert growth["h200_sxm"] < 1.6
    assert growth["b200_sxm"] > 3


def test_a_board_with_more_power_per_product_sustains_more_and_one_with_less_less():
    limited = {"tensor_ratio": 0.83, "clock_ratio": 0.28}
    start = 0.83 / 1.28
    assert sustained("rtx_pro_6000", "l40s", is_related=True, **limited) > 1.15 * start
    assert sustained("l4", "l40s", is_related=True, **limited) < 0.8 * start
    assert sustained("h200_sxm", "h100_sxm", is_related=True, **limited) == pytest.approx(start)


def test_power_says_nothing_across_kinds_of_matrix_units():
    limited = {"tensor_ratio": 0.83, "clock_ratio": 0.28}
    assert sustained("h100_sxm", "l40s", is_related=False, **limited) == pytest.approx(0.83 / 1.28)
    assert sustained("a100_sxm_80gb", "l40s", is_related=False, **limited) > 1.15 * 0.83 / 1.28


def test_a_device_that_only_one_library_decoded_on_says_nothing_about_decoding_on_others():
    alone = _alone("attention", "a100_sxm_80gb", "bf16")
    assert {"decode_launch_clocks", "decode_step_clocks"} <= set(alone)
    assert not {"tensor_ratio", "launch_clocks"} & set(alone)
    assert not _alone("attention", "l40s", "bf16")
