"""Every way to spoil a device file is refused, with file and key named."""

import copy
import tomllib

import pytest

from nearpeak.errors import SpecError
from nearpeak.targets import _FOLDER, TARGETS, target_of
from nearpeak.targets.device_file import parse_target
from nearpeak.targets.device_schema import REQUIRED

GOOD = tomllib.loads((_FOLDER / "h100_sxm.toml").read_text(encoding="utf-8"))
BF16 = ("peak", "tensor.bf16")


def spoiled(path, value=None):
    """Return the good file with one entry replaced, or removed when `value` is None."""
    raw = copy.deepcopy(GOOD)
    table = raw
    for key in path[:-1]:
        table = table[key]
    if value is None:
        del table[path[-1]]
    else:
        table[path[-1]] = value
    return raw


MUTANTS = [
    *[((key,), None, f"entry '{key}' is missing") for key in REQUIRED],
    ((*BF16, "rate"), None, 'peak."tensor.bf16".rate is missing'),
    ((*BF16, "sm_clock"), None, 'peak."tensor.bf16".sm_clock is missing'),
    ((*BF16, "clock"), None, 'peak."tensor.bf16".clock is missing'),
    ((*BF16, "source"), None, 'peak."tensor.bf16" has no source'),
    ((*BF16, "source"), "", 'peak."tensor.bf16" has no source'),
    ((*BF16, "source"), 5, 'peak."tensor.bf16".source is 5'),
    ((*BF16, "rate"), "989.4 TFLOPS", 'peak."tensor.bf16".rate: quantity'),
    ((*BF16, "rate"), "98.94 TFLOP/s", "must agree within 1%"),
    ((*BF16, "clock"), "1.98 GHz", "must agree within 1%"),
    ((*BF16, "clock"), "1.83 GiHz", 'peak."tensor.bf16".clock'),
    ((*BF16, "sm_clock"), "4 KiFLOP", 'peak."tensor.bf16".sm_clock'),
    ((*BF16, "verified"), "no", 'peak."tensor.bf16".verified'),
    ((*BF16, "boost"), "2 GHz", 'peak."tensor.bf16".boost is not known'),
    (BF16, "989.4 TFLOP/s", 'peak."tensor.bf16" is .* must be a table'),
    (("peak",), {}, "peak is empty"),
    (("dram", "bandwidth"), "3.35 TB", r"dram\.bandwidth: quantity"),
    (("dram", "bandwidth"), 3350, r"dram\.bandwidth is 3350"),
    (("dram", "bandwidth"), "0 TB/s", r"dram\.bandwidth is '0 TB/s'; it must be above 0"),
    (("dram", "bandwidth"), "1e999 TB/s", r"dram\.bandwidth"),
    (("dram", "capacity"), "80 Gb", r"dram\.capacity: quantity"),
    (("dram", "capacity"), "80 gib", r"dram\.capacity: quantity"),
    (("dram", "capacity"), "0.3 B", r"dram\.capacity: quantity"),
    (("dram", "bandwith"), "3.35 TB/s", r"dram\.bandwith is not known; known are bandwidth"),
    (("dram", "source"), None, "dram has no source"),
    (("l2", "source"), None, "l2 has no source"),
    (("clock", "source"), None, "clock has no source"),
    (("launch", "floor"), "2.45 ms/s", r"launch\.floor: quantity"),
    (("link", "nvlink", "bandwidth"), None, r"link\.nvlink\.bandwidth is missing"),
    (("link", "nvlink", "source"), None, r"link\.nvlink has no source"),
    (("partition", "1g.10gb", "source"), None, 'partition."1g.10gb" has no source'),
    (("partition", "1g.10gb", "sm_count"), 133, 'partition."1g.10gb".sm_count is 133'),
    (("partition", "1g.10gb", "sm_count"), 0, 'partition."1g.10gb".sm_count is 0'),
    (("partition", "1g.10gb", "dram_ratio"), 1.5, 'partition."1g.10gb".dram_ratio is 1.5'),
    (("partition", "1g.10gb", "dram_ratio"), 1, 'partition."1g.10gb".dram_ratio is 1; it must be a float'),
    (("partition", "1g.10gb", "clock"), "2.5 GHz", 'partition."1g.10gb".clock'),
    (("partition", "1g.10gb", "watts"), "5 W", 'partition."1g.10gb".watts is not known'),
    (("sm_count",), 0, "sm_count is 0"),
    (("sm_count",), 132.0, "sm_count is 132.0"),
    (("sm_count",), True, "sm_count is True"),
    (("sm_count",), 136, "must agree within 1%"),
    (("sm_source",), "", "sm_source is empty"),
    (("kind",), "tpu", "kind is 'tpu'"),
    (("dram",), "3.35 TB/s", "dram is '3.35 TB/s'"),
    (("nvlink",), {"bandwidth": "450 GB/s"}, "entry 'nvlink' is not known"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "message"), MUTANTS)
def test_spoiled_file_is_refused_with_file_and_key_named(path, value, message):
    with pytest.raises(SpecError, match=message) as caught:
        parse_target("mine", spoiled(path, value))
    assert str(caught.value).startswith("target mine: ")
    assert "\n" not in str(caught.value)


def test_binary_and_decimal_capacity_are_different():
    decimal = parse_target("mine", spoiled(("dram", "capacity"), "80 GB")).dram.capacity_bytes
    binary = parse_target("mine", GOOD).dram.capacity_bytes
    assert (decimal, binary) == (80 * 10**9, 80 * 2**30)


@pytest.mark.parametrize("factor", [0.9901, 1.0099])
def test_peak_within_one_percent_of_its_own_arithmetic_is_accepted(factor):
    derived = 132 * 4096 * 1.83e9
    parse_target("mine", spoiled((*BF16, "rate"), f"{derived / factor!r} FLOP/s"))


@pytest.mark.parametrize("factor", [0.9899, 1.0101])
def test_peak_beyond_one_percent_of_its_own_arithmetic_is_refused(factor):
    derived = 132 * 4096 * 1.83e9
    with pytest.raises(SpecError, match=r"sm_count × sm_clock × clock .* must agree within 1%"):
        parse_target("mine", spoiled((*BF16, "rate"), f"{derived / factor!r} FLOP/s"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sm_count = 132\nsm_count = 133\n", "not TOML"),
        ("", "entry 'title' is missing"),
        (None, "not found"),
        ("bandwidth", "entry 'dram' is missing"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ":1g.10gb"])
def test_own_file_is_named_in_its_errors(tmp_path, text, message, suffix):
    path = tmp_path / "mine.toml"
    if text is not None:
        good = (_FOLDER / "h100_sxm.toml").read_text(encoding="utf-8")
        path.write_text(good.replace("[dram]", "[dam]") if text == "bandwidth" else text, encoding="utf-8")
    with pytest.raises(SpecError, match=message) as caught:
        target_of(f"{path}{suffix}")
    assert str(caught.value).startswith(f"target file {path}: ")


def test_own_file_is_read_anew_and_derives_like_a_shipped_one(tmp_path):
    path = tmp_path / "mine.toml"
    text = (_FOLDER / "h100_sxm.toml").read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    assert target_of(f"{path}:3g.40gb", ["dram.bandwidth=1 TB/s"]).name == "mine:3g.40gb+dram.bandwidth=1 TB/s"
    path.write_text(text.replace("3.35 TB/s", "4 TB/s", 1), encoding="utf-8")
    assert target_of(str(path)).dram.bandwidth_bytes_per_s == 4e12


def test_folder_in_place_of_a_file_is_refused(tmp_path):
    (tmp_path / "mine.toml").mkdir()
    with pytest.raises(SpecError, match="is a folder"):
        target_of(str(tmp_path / "mine.toml"))


def test_deriving_leaves_the_device_file_alone():
    before = copy.deepcopy(TARGETS["h100_sxm"])
    target_of("h100_sxm:3g.40gb", ["dram.bandwidth=1 TB/s", "sm_count=10", "launch.floor=1 us"])
    assert TARGETS["h100_sxm"] == before


def test_caches_of_single_dies_add_to_the_shared_one():
    assert target_of("mi300x").l2.capacity_bytes == (256 + 32) * 2**20
