"""Devices of a user's own that have the name of one that ships: data of that one are a step away."""

import json
import re
from pathlib import Path

import pytest

import nearpeak
from nearpeak.cli import application
from nearpeak.prediction import case_prediction, documented_target, provenance
from nearpeak.prediction.calibration import coefficient_store
from nearpeak.targets import _FOLDER

TINY = """
title = "Mine"
vendor = "NVIDIA"
kind = "gpu"
architecture = "{architecture}"
sm_count = 64
sm_source = "datasheet"
[peak."tensor.bf16"]
rate = "262.144 TFLOP/s"
sm_clock = "2048 FLOP"
clock = "2 GHz"
source = "datasheet"
[peak."vector.fp32"]
rate = "32.768 TFLOP/s"
sm_clock = "256 FLOP"
clock = "2 GHz"
source = "datasheet"
[dram]
bandwidth = "2 TB/s"
capacity = "48 GB"
source = "datasheet"
[l2]
capacity = "32 MB"
source = "datasheet"
"""
CASE = nearpeak.case("gemm", m=4096, n=4096, k=4096, dtype="bf16")
WORDS = ("gemm", "m=4096", "n=4096", "k=4096", "dtype=bf16")


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A user folder of its own; what was read of another is forgotten before and after."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    forget()
    yield tmp_path / "nearpeak"
    forget()


def forget():
    read = coefficient_store._stored, coefficient_store._groups, documented_target._stock, documented_target._documented
    for cached in (*read, provenance._shared, case_prediction._shipped_prediction):
        cached.cache_clear()


def run(capsys, *words):
    application()(list(words), standalone_mode=False)
    return capsys.readouterr()


def stated(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def slower_memory():
    text = (Path(_FOLDER) / "h100_sxm.toml").read_text()
    assert text.count('bandwidth = "3.35 TB/s"') == 1
    return text.replace('bandwidth = "3.35 TB/s"', 'bandwidth = "2 TB/s"')


@pytest.mark.parametrize("name", ["h100_sxm", "l4", "gtx_1080_ti"])
@pytest.mark.parametrize("architecture", ["hopper", "first"])
def test_the_name_of_a_measured_device_changes_nothing_of_what_is_predicted(name, architecture, user):
    text = TINY.format(architecture=architecture)
    named, own = (nearpeak.predict(CASE, str(stated(user, one, text))) for one in (name, "mine"))
    assert named.distance_count == own.distance_count >= 1
    assert (named.low_s, named.time_s, named.high_s) == (own.low_s, own.time_s, own.high_s)
    assert (own.calibration.differing, "sm_count" in named.calibration.differing) == ((), True)
    if named.energy is not None:
        assert named.energy.distance_count >= 1


def test_a_copy_of_a_device_is_that_device_and_one_with_another_figure_is_not(user):
    shipped = nearpeak.predict(CASE, "h100_sxm")
    text = slower_memory()
    copied = nearpeak.predict(CASE, str(stated(user, "h100_sxm", text.replace('"2 TB/s"', '"3.35 TB/s"'))))
    assert (copied.time_s, copied.distance_count) == (shipped.time_s, 0)
    other = nearpeak.predict(CASE, str(stated(user, "h100_sxm", text)))
    assert (other.distance_count, other.calibration.differing) == (1, ("dram.bandwidth",))
    assert other.high_s / other.low_s > shipped.high_s / shipped.low_s


def test_a_device_in_the_user_folder_hides_no_data_of_others_and_says_that_it_differs(user, capsys, monkeypatch):
    kin = nearpeak.predict(CASE, "h800_sxm")
    stated(user / "targets", "h100_sxm", slower_memory())
    forget()
    coefficient_store._device.cache_clear()
    assert nearpeak.predict(CASE, "h800_sxm").time_s == kin.time_s
    assert nearpeak.predict(CASE, "h100_sxm:1g.10gb").distance_count == 1
    monkeypatch.setattr("nearpeak.cli.shared.options.on_terminal", lambda: True)
    said = run(capsys, "predict", *WORDS, "-t", "h100_sxm").out
    assert not re.search(r"(?<!not )measured on this device", said)
    assert "your h100_sxm is not the one that ships and was measured: dram.bandwidth" in " ".join(said.split())
    assert max(map(len, re.sub(r"\x1b\[\d*m", "", said).splitlines())) <= 80
    table = user / "in.csv"
    table.write_text("op,dtype,m,n,k\ngemm,bf16,16,16,16\n")
    assert "your h100_sxm is not the one" in run(capsys, "predict", str(table), "-t", "h100_sxm").err
    assert "your h100_sxm" not in run(capsys, "predict", str(table), "-t", "h200_sxm").err


def test_a_fit_on_ones_own_device_is_of_that_device_alone(user, capsys):
    shipped = nearpeak.predict(CASE, "h100_sxm")
    own, data = stated(user, "h100_sxm", slower_memory()), user / "in.csv"
    rows = [(m, n, k) for m in (1, 64, 1024, 8192) for n in (512, 8192) for k in (512, 4096)]
    lines = [f"gemm,bf16,{m},{n},{k},{15 + n * k / 1.8e5 + 3 * m * n * k / 1e8}" for m, n, k in rows]
    data.write_text("\n".join(["op,dtype,m,n,k,time_us", *lines]) + "\n")
    given = user / "given.toml"
    for out in ((), ("--out", str(given))):
        run(capsys, "calibrate", "fit", "--data", str(data), "-t", str(own), *out)
    forget()
    found = nearpeak.predict(CASE, str(own))
    assert (found.distance_count, found.calibration.row_count) == (0, 16)
    assert nearpeak.predict(CASE, "h100_sxm") == shipped
    stated(user, "h100_sxm", slower_memory().replace('"2 TB/s"', '"1 TB/s"'))
    again = nearpeak.predict(CASE, str(own))
    assert (again.distance_count, again.calibration.row_count) == (1, shipped.calibration.row_count)
    words = ("predict", *WORDS, "-t", str(own), "--json", "--calibration", str(given))
    assert json.loads(run(capsys, *words).out)["distance_count"] == 1
