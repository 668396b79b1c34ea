"""Power logs of other tools: the public ones to their golden figures, and mutated ones refused by line."""

import contextlib
import json
import random

import pytest
from tests.samples import SAMPLES, needs_samples
from tests.unit.exchange.power_log_texts import MADE

from nearpeak.core.runs.energy import energies_of, energy_of
from nearpeak.core.runs.telemetry import Series
from nearpeak.errors import SpecError
from nearpeak.exchange.power_logs import LOGS, read_log
from nearpeak.exchange.telemetry_lines import telemetry_record
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.telemetry_report import telemetry_document

SPL = SAMPLES / "mlperf_power" / "xavier_nx_resnet50_ss_spl.txt"


def made(folder, name, text=None):
    file = folder / f"{name}.log"
    file.write_text(MADE[name] if text is None else text)
    return file


def decimated(series, step):
    return Series(
        source=series.source, channel=series.channel, times_s=list(series.times_s)[::step],
        doubts_s=list(series.doubts_s)[::step], values=series.values[::step],
    )  # fmt: skip


@needs_samples
def test_the_energy_of_the_public_mlperf_log_is_reproduced():
    (found,) = energies_of(read_log(SPL))
    assert found.energy_j == pytest.approx(6522.537, abs=0.001)
    assert found.parts_j["sampling"] == pytest.approx(19.751, abs=0.001)
    assert found.covered_s == pytest.approx(637.022)
    assert found.sample_count == 638
    assert found.warnings == ()


@needs_samples
@pytest.mark.parametrize(
    ("step", "energy_j", "covered_s"),
    [(2, 6522.953, 636.018), (5, 6513.341, 635.015), (10, 6518.155, 630.009), (60, 6121.551, 600.010)],
)
def test_fewer_of_its_readings_give_the_golden_energies_over_what_they_cover(step, energy_j, covered_s):
    series = decimated(read_log(SPL).streams[0].of("power"), step)
    found = energy_of(series, series.times_s[0], series.times_s[-1])
    assert found.energy_j == pytest.approx(energy_j, abs=0.001)
    assert found.covered_s == pytest.approx(covered_s, abs=0.001)


@needs_samples
@pytest.mark.parametrize(
    ("begin", "end", "energy_j", "covered_s"),
    [(0, 60, 489.672, 59.016), (60, 120, 619.929, 59.002), (0, 300, 3016.919, 299.009)],
)
def test_its_minutes_have_the_golden_energies(begin, end, energy_j, covered_s):
    series = read_log(SPL).streams[0].of("power")
    start = series.times_s[0]
    inside = [t for t in series.times_s if begin <= t - start <= end]
    found = energy_of(series, inside[0], inside[-1])
    assert (found.energy_j, found.covered_s) == pytest.approx((energy_j, covered_s), abs=0.001)


@needs_samples
def test_the_public_jetson_logs_have_their_golden_energies_and_a_dead_sensor_is_named():
    table = read_log(SAMPLES / "jetson" / "orin_nano_tegrastats.csv")
    energies = {one.domain: one for one in energies_of(table)}
    assert energies["power_in"].energy_j == pytest.approx(801.0718, abs=1e-3)
    assert energies["power_in"].covered_s == 66.0
    assert "board_temp_c never changes" in table.note
    series = decimated(table.streams[0].of("power_in_mw"), 10)
    assert energy_of(series, 0.0, 66.0).energy_j == pytest.approx(799.7485, abs=1e-3)
    summary = read_log(SAMPLES / "jetson" / "fno_energy_long_summary.csv")
    assert len(summary.spans) == 15
    assert energies_of(summary)[0].energy_j == pytest.approx(35217.1396, abs=1e-3)


@needs_samples
@pytest.mark.parametrize(
    ("name", "limits", "ratios"),
    [("A40+resnet50+gpu0", (300, 175), (-0.218, 0.164)), ("V100+resnet50+gpu0", (250, 150), (-0.204, 0.215)),
     ("A40+resnet18+gpu0,1,2,3", (300, 100), (-0.095, 0.121)), ("V100+resnet50+gpu0,1", (250, 125), (-0.232, 0.365))],
)  # fmt: skip
def test_the_public_zeus_windows_give_the_golden_savings(name, limits, ratios):
    log = read_log(SAMPLES / "zeus" / f"{name}.csv")
    energies, times = [], []
    for limit in limits:
        span = f"__GlobalPowerLimitOptimizer_{limit}"
        energies.append(sum(one.energy_j for one in energies_of(log, span)))
        begin_s, end_s = log.span_of(span)
        times.append(end_s - begin_s)
    assert (energies[1] / energies[0] - 1, times[1] / times[0] - 1) == pytest.approx(ratios, abs=6e-4)


def test_windows_of_one_name_keep_their_own_energies(tmp_path):
    rounds = "start_time,window_name,elapsed_time,gpu0_energy\n1,w,2,600\n5,w,2,700\n9,v,1,50\n"
    log = read_log(made(tmp_path, "zeus", rounds))
    assert {name: energies_of(log, name)[0].energy_j for name, _, _ in log.spans} == {"w": 600, "w (2)": 700, "v": 50}
    assert "by counter of gpu0.energy: 1350 J," in to_terminal(telemetry_document(log))


def test_an_energy_that_a_log_states_is_one_number_and_no_range(tmp_path):
    text = " ".join(to_terminal(telemetry_document(read_log(made(tmp_path, "zeus")))).split())
    assert "w300 2 s gpu0 600 J (1 value), gpu1 500 J (1 value)" in text


@needs_samples
@pytest.mark.parametrize(("name", "count"), [("a40", 453), ("v100", 476)])
def test_the_public_power_traces_are_read_whole(name, count):
    assert len(read_log(SAMPLES / "zeus" / f"summary_power_{name}.csv").spans) == count


def test_each_format_is_recognised_by_itself_alone(tmp_path):
    assert set(MADE) == set(LOGS)
    for name, text in MADE.items():
        assert [one for one in LOGS if LOGS[one].recognises(text)] == [name]
        assert read_log(made(tmp_path, name)).streams[0].source == name


def test_what_was_kept_of_a_log_is_read_again_with_the_same_energy(tmp_path):
    first = read_log(made(tmp_path, "nvidia_smi"))
    text = json.dumps({"kind": "telemetry", "schema": 1, **telemetry_record(first)})
    assert energies_of(read_log(made(tmp_path, "recording", text))) == energies_of(first)
    with pytest.raises(SpecError, match="cut off or no JSON"):
        read_log(made(tmp_path, "recording", text[:-40]))


def test_a_power_analyser_log_has_channels_marks_and_milliseconds(tmp_path):
    found = read_log(made(tmp_path, "spl"))
    assert [(name, (b - a) / 1e9) for name, a, b in found.spans] == [("a", 1.018), ("b", 0.0)]
    assert found.streams[0].of("power").values == (3.8, 4.7, 5.2)
    cut = read_log(made(tmp_path, "spl", MADE["spl"] + "Time,02-23-2022 06:12:06.7"))
    assert len(cut.streams[0].before_ns) == 3  # the last line is still being written


def test_tegrastats_lines_give_known_quantities_and_pass_over_others(tmp_path):
    found = read_log(made(tmp_path, "tegrastats"))
    one = {series.channel.name: series.values[0] for series in found.series()}
    assert one["VDD_IN.power"] == 5.971
    assert one["NEW_RAIL.power"] == pytest.approx(0.007)
    assert (one["CPU.load"], one["CPU.clock"]) == (pytest.approx(0.2), 1.51e9)
    assert (one["GR3D.load"], one["GR3D.clock"], one["gpu.temperature"]) == (0.5, 1.018e9, -256.0)
    assert (one["RAM.used"], found.window_s) == (519 * 2**20, 2.0)


def test_tegrastats_without_times_needs_an_interval(tmp_path):
    bare = "\n".join(line[20:] for line in MADE["tegrastats"].splitlines()) + "\n"
    with pytest.raises(SpecError, match="--interval"):
        read_log(made(tmp_path, "tegrastats", bare))
    assert read_log(made(tmp_path, "tegrastats", bare), 1.0).window_s == 1.0


def test_stated_times_win_over_an_interval(tmp_path):
    for name in MADE:
        stated, told = read_log(made(tmp_path, name)), read_log(made(tmp_path, name), 17.0)
        assert repr(stated) == repr(told), name  # what is not known is nan, which equals nothing


def test_lines_of_one_second_are_an_interval_apart_and_begin_where_they_say(tmp_path):
    first = MADE["tegrastats"].splitlines()[0]
    same = "\n".join([first, first, first]) + "\n"
    with pytest.raises(SpecError, match="the same second; give --interval"):
        read_log(made(tmp_path, "tegrastats", same))
    found = read_log(made(tmp_path, "tegrastats", same), 0.2)
    assert found.window_s == pytest.approx(0.4)
    assert found.wall_ns == read_log(made(tmp_path, "tegrastats")).wall_ns > 0
    earlier = "\n".join(reversed(MADE["tegrastats"].splitlines())) + "\n"
    with pytest.raises(SpecError, match="an earlier time than its first"):
        read_log(made(tmp_path, "tegrastats", earlier), 0.2)


def test_nvidia_smi_logs_know_what_was_not_available(tmp_path):
    found = read_log(made(tmp_path, "nvidia_smi"))
    assert {one.domain: round(one.energy_j, 3) for one in energies_of(found)} == {"gpu0": 40.75}
    assert found.streams[0].of("gpu1.power.draw").values[1] == 70.0


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [("spl", "Watts,4.7", "Watts,four", "spl.log:2: Watts is 'four'"),
     ("spl", "02-23-2022 06:12:04", "22-02", ":2: the time"),
     ("spl", "Watts,4.7", "Joule,4.7", ":2: states no Watts"), ("spl", "Time,02-23-2022 06:12:04", "Tim", ":2: 'Tim"),
     ("table", "100,6011,1018,0", "100,6011", ":3: 2 cells"),
     ("table", "6011,1010", "nan,1010", ":4: power_in_mw is 'nan'"),
     ("table", "power_in_mw,gpu_freq_mhz", "a,b", "no column ends in a unit"),
     ("zeus", "600.0", "", "gpu0_energy is ''"),
     ("jetson_summary", "1440.0", "1500.0", "avg_power_w × seconds"),
     ("nvidia_smi", "2024/05/01 12:00:00.600", "x", "timestamp"),
     ("tegrastats", "RAM 520/7607MB CPU [0%@729,off,0%@729] GR3D_FREQ 0% cpu@45C VDD_IN 6011mW/5991mW", "noise", ":2:"),
     ("zeus_trace", "90.5", "inf", "average_power is 'inf'")],
)  # fmt: skip
def test_a_wrong_entry_is_named_with_its_line(tmp_path, name, old, new, words):
    text = MADE[name].replace(old, new, 1) + MADE[name].splitlines()[-1] + "\n"
    with pytest.raises(SpecError) as error:
        read_log(made(tmp_path, name, text))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_mutated_logs_give_telemetry_or_one_clear_line_and_nothing_else(tmp_path):
    draw = random.Random(0)
    for name in sorted(MADE) * 10:
        data = bytearray(MADE[name].encode())
        for _ in range(draw.randint(1, 6)):
            place = draw.randrange(len(data))
            data[place : place + draw.choice([0, 1, 8])] = draw.choice(
                [b"", b"\x00", b",", b"\n", b"9", b"-", b"nan", b"\xff"]
            )
        file = tmp_path / "mutated.log"
        file.write_bytes(bytes(data))
        with contextlib.suppress(SpecError):
            read_log(file)


@pytest.mark.parametrize("text", ["", "hello\n", "a,b,c\n1,2,3\n"])
def test_what_is_no_power_log_is_refused_with_the_known_formats(tmp_path, text):
    with pytest.raises(SpecError, match="no known power-log format; there are dcgmi_dmon"):
        read_log(made(tmp_path, "x", text))


def test_dmon_reads_all_gpus_under_headers_that_come_again(tmp_path):
    found = read_log(made(tmp_path, "nvidia_dmon"))
    values = {series.channel.name: series.values for series in found.series()}
    assert values["gpu0.power"] == (100.0, 120.0)
    assert values["gpu0.load"] == (0.55, 0.55)
    assert values["gpu1.clock"] == (1.201e9, 1.201e9)
    assert "gpu0.memory_temperature" not in values
    assert found.window_s == 2.0
    assert energies_of(found)[0].energy_j == pytest.approx(220.0)


def test_units_of_dcgmi_are_those_below_the_names_or_of_the_field(tmp_path):
    values = {series.channel.name: series.values for series in read_log(made(tmp_path, "dcgmi_dmon")).series()}
    assert values["gpu0.power"] == (100.0,)
    assert values["gpu1.load"] == (0.6,)
    assert values["gpu1.smact"] == (0.5,)
    assert "gpu1.power" not in values


@pytest.mark.parametrize("name", ["dcgmi_dmon", "rocm_smi", "nvidia_dmon"])
def test_readings_without_times_need_an_interval_where_there_are_several(tmp_path, name):
    text = (
        MADE[name]
        .replace("#Date       Time", "#")
        .replace("#YYYYMMDD   HH:MM:SS", "#")
        .replace(" 20260301   10:00:0", " ")
    )
    text = "\n".join(line.removeprefix(" 0   ").removeprefix(" 2   ") for line in text.split("\n"))
    twice = text + text
    with pytest.raises(SpecError, match="have no time; give the interval"):
        read_log(made(tmp_path, name, twice))
    assert read_log(made(tmp_path, name, twice), 0.5).window_s >= 0.5


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [("dcgmi_dmon", "GPU 1     N/A", "GPU 1     N/A 7", ":4: 5 cells, the header has 4"),
     ("dcgmi_dmon", "100.000", "many", "POWER is 'many'"), ("dcgmi_dmon", "GPU 0", "Error", ":3: 'Error"),
     ("nvidia_dmon", "20260301   10:00:00      0", "20260301   10:00:00", ":3: 8 cells"),
     ("nvidia_dmon", "20260301   10:00:00      0", "yesterday   10:00:00      0", "wanted yearmonthday"),
     ("rocm_smi", "card0,100.0", "card0", ":2: 3 cells"), ("rocm_smi", "100.0", "x", "is 'x'; it must be a number")],
)  # fmt: skip
def test_a_wrong_cell_of_a_vendor_tool_is_named_with_its_line(tmp_path, name, old, new, words):
    with pytest.raises(SpecError) as error:
        read_log(made(tmp_path, name, MADE[name].replace(old, new, 1)))
    assert words in str(error.value)


def test_a_header_that_comes_again_is_no_reading(tmp_path):
    once = read_log(made(tmp_path, "nvidia_smi"))
    header, *rows = MADE["nvidia_smi"].splitlines()
    again = "\n".join([header, *rows[: len(rows) // 2], header, *rows[len(rows) // 2 :]]) + "\n"
    assert repr(read_log(made(tmp_path, "nvidia_smi", again)).streams) == repr(once.streams)  # NaN equals nothing


def test_a_last_line_that_is_cut_off_or_an_error_is_told(tmp_path):
    text = MADE["nvidia_smi"] + "Unable to determine the device handle for GPU 0000:01:00.0: Unknown Error\n"
    found = read_log(made(tmp_path, "nvidia_smi", text))
    assert found.note.startswith("the last line has fewer cells than the header and is left out")
    assert "left out" not in read_log(made(tmp_path, "nvidia_smi")).note


@pytest.mark.parametrize("power", ["-105.00 W", "1e300 W"])
def test_a_power_that_cannot_be_is_no_reading(tmp_path, power):
    text = "timestamp, power.draw [W]\n" + "".join(
        f"2026/03/01 10:00:0{second}.000, {power if second == 4 else f'{100 + second} W'}\n" for second in range(9)
    )
    found = read_log(made(tmp_path, "nvidia_smi", text))
    assert "1 reading of 9 left out, as no device takes" in found.note
    assert energies_of(found)[0].energy_j == pytest.approx(832.0)


def test_a_cell_in_another_unit_than_its_column_is_refused(tmp_path):
    text = "timestamp, power.draw [W]\n2026/03/01 10:00:00.000, 100.00 kW\n"
    with pytest.raises(SpecError, match=r":2: power.draw \[W\] is '100.00 kW'; its column is in W"):
        read_log(made(tmp_path, "nvidia_smi", text))
