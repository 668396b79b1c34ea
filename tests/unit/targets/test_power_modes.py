"""Power modes of boards: host cores and clocks from their documents, and the file of a board itself."""

import re

import pytest

from nearpeak.errors import SpecError
from nearpeak.targets import TARGETS
from nearpeak.targets.power_modes import FULL, board_modes, boards_with_modes, modes_here

TEXT = """\
# comment
< PARAM TYPE=FILE NAME=GPU >
FREQ /sys/devices/gpu
< POWER_MODEL ID=0 NAME=MAXN >
CPU_ONLINE CORE_0 1
GPU MAX_FREQ 1300500000
< POWER_MODEL ID=1 NAME=15W >
GPU MAX_FREQ 408000000
ODD WORD x
< PM_CONFIG DEFAULT=1 >
GPU MAX_FREQ 1
"""


@pytest.mark.parametrize("board", boards_with_modes())
def test_modes_are_within_the_board_and_agree_with_their_sources(board):
    whole, *modes = board_modes(board)
    assert whole.name == FULL
    for mode in modes:
        assert mode.sm_count <= whole.sm_count
        assert mode.clock_hz <= whole.clock_hz * (1 + 1e-9)
        stated = re.search(r"(\d+) CPU cores at ([\d.]+) MHz", mode.source)
        if stated:
            assert (mode.host_count, mode.host_clock_hz) == (int(stated[1]), pytest.approx(float(stated[2]) * 1e6))


def test_modes_of_an_orin_nano():
    rows = {mode.name: (mode.clock_hz, mode.sm_count, mode.budget_w) for mode in board_modes("jetson_orin_nano")}
    assert rows["7W"] == (408e6, 4, 7.0)
    assert rows["25W"] == (918e6, 8, 25.0)


@pytest.mark.parametrize("name", ["h100_sxm", "jetson_orin_nano:15W"])
def test_targets_without_modes_and_modes_themselves_are_refused(name):
    with pytest.raises(SpecError, match="jetson"):
        board_modes(name)


def test_the_file_of_a_board_is_read_as_it_is(tmp_path):
    path = tmp_path / "nvpmodel.conf"
    path.write_text(TEXT, encoding="utf-8")
    assert modes_here(path) == (
        ("MAXN", {"CPU_ONLINE CORE_0": "1", "GPU MAX_FREQ": "1300500000"}),
        ("15W", {"GPU MAX_FREQ": "408000000", "ODD WORD": "x"}),
    )


def test_no_file_and_one_without_modes_are_one_line(tmp_path):
    with pytest.raises(SpecError, match="not found"):
        modes_here(tmp_path / "absent.conf")
    (tmp_path / "empty.conf").write_text("nothing\n", encoding="utf-8")
    with pytest.raises(SpecError, match="names no mode"):
        modes_here(tmp_path / "empty.conf")


def test_every_shipped_board_with_modes_is_listed():
    assert set(boards_with_modes()) == {
        name for name in TARGETS if any("clock" in row for row in TARGETS[name].get("partition", {}).values())
    }


@pytest.mark.parametrize(("name", "message"), [
    ("jetson_orin_nano:33W", "has no mode '33W'; there are full, 7W, 15W, 15W@5, 25W"),
    ("jetson_orin_nano:15W", "is one mode already"),
])  # fmt: skip
def test_a_mode_where_a_board_is_wanted_says_whether_the_board_has_it(name, message):
    with pytest.raises(SpecError, match=message):
        board_modes(name)
