"""The HTML page: complete in itself, escaped, small, and its charts do not lie."""

import json
import re

import pytest
from tests.unit.reports import factory
from tests.unit.reports.test_step_headline import LONG, chain

import nearpeak
from nearpeak.reports import bar_geometry, gap_charts, render, roofline_geometry
from nearpeak.reports.analysis.html import embedded, page_data

ANALYSIS = factory.analysis(measured=True)
PAGE = render(ANALYSIS, "html")


@pytest.fixture(scope="module")
def predicted():
    return nearpeak.analyze(chain(LONG, batch=8), ["h100_sxm", "l4"])


def test_page_names_nothing_outside_itself():
    without_namespace = PAGE.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(|<link|<img|<iframe", without_namespace)
    assert "default-src 'none'" in PAGE


def test_hostile_names_are_text_and_not_elements():
    assert "<script>alert" not in PAGE
    assert "&lt;script&gt;alert(1)" in PAGE
    assert PAGE.count("<script") == PAGE.count("</script") == 2


def test_embedded_data_cannot_end_its_element_and_reads_back():
    hostile = {"name": "</script><!--<script>&\u2028"}
    text = str(embedded(hostile))
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text) == hostile


def test_every_row_is_a_circle_or_listed_as_having_no_place():
    plot = roofline_geometry.plot_of(ANALYSIS)
    assert PAGE.count("<circle ") == len(plot.rows) == 19
    assert "2 cases under 0.001 FLOP/B have no place on it" in PAGE


def test_the_names_of_the_roofs_lie_on_top_of_the_circles():
    assert PAGE.rindex("<circle ") < PAGE.index('class="roof names')
    assert "<text" not in PAGE[PAGE.index('<g class="roof for-target"') : PAGE.index('<g id="circles"')]


def test_axes_of_the_roofline_are_the_same_for_every_target():
    plot = roofline_geometry.plot_of(ANALYSIS)
    for target in ANALYSIS.targets:
        for circle in roofline_geometry.circles(ANALYSIS, plot, target):
            assert 0 <= float(circle.across[:-1]) <= 100
            assert 0 <= float(circle.down[:-1]) <= 100


def test_circle_areas_are_proportional_to_time():
    plot = roofline_geometry.plot_of(ANALYSIS)
    target = ANALYSIS.targets[0]
    first, *_ = circles = roofline_geometry.circles(ANALYSIS, plot, target)
    for circle in circles:
        share = target.times[int(circle.key)].bound_s * circle.row.call_count / target.unfused_s
        expected = max(roofline_geometry.SMALLEST_PX, roofline_geometry.AREA_PX * share**0.5)
        assert float(circle.radius) == pytest.approx(expected, abs=0.05)
    assert float(first.radius) == max(float(circle.radius) for circle in circles)


def test_bars_start_at_zero_and_share_their_chart_axis():
    for chart in bar_geometry.share_charts(ANALYSIS, ANALYSIS.targets[0]):
        widths = [sum(float(part.width[:-1]) for part in bar.segments) for bar in chart.bars]
        assert max(widths) == pytest.approx(100, abs=0.1)
    parts = ANALYSIS.targets[0].by_operator
    chart = bar_geometry.share_charts(ANALYSIS, ANALYSIS.targets[0])[1]
    drawn = sum(float(part.width[:-1]) for part in chart.bars[1].segments)
    assert drawn == pytest.approx(100 * parts[1].time_s / parts[0].time_s, rel=1e-3)


def test_bars_beyond_the_shown_ones_are_added_up_not_dropped():
    many = factory.analysis(rows=factory.many_rows(200))
    chart = bar_geometry.share_charts(many, many.targets[0])[2]
    total = sum(float(part.width[:-1]) for bar in chart.bars for part in bar.segments)
    parts = many.targets[0].by_module
    assert chart.bars[-1].name == f"{len(parts) - bar_geometry.TOP_COUNT} others"
    rest_s = sum(part.time_s for part in parts[bar_geometry.TOP_COUNT :])
    axis_s = max(*(part.time_s for part in parts), rest_s)
    assert total == pytest.approx(100 * sum(part.time_s for part in parts) / axis_s, rel=1e-3)


def test_memory_bars_share_the_axis_of_the_largest_capacity():
    axis = bar_geometry.memory_axis_bytes(ANALYSIS, ANALYSIS.memory)
    assert axis == 192 * 10**9
    widths = [float(part.width[:-1]) for part in bar_geometry.memory_segments(ANALYSIS.memory, axis)]
    assert widths[0] == pytest.approx(100 * ANALYSIS.memory.weight_bytes / axis, rel=1e-3)


def test_page_data_has_one_entry_per_row_and_target():
    data = page_data(ANALYSIS, roofline_geometry.plot_of(ANALYSIS))
    assert {len(target["bound_s"]) for target in data["targets"]} == {len(ANALYSIS.rows)} == {len(data["rows"])}
    assert [target["measured_s"] is not None for target in data["targets"]] == [False] * 6 + [True]


def test_page_of_a_training_step_stays_below_one_megabyte():
    assert len(PAGE.encode()) < 500_000
    assert len(render(factory.analysis(rows=factory.many_rows(2000)), "html").encode()) < 2_000_000


def test_unverified_figures_measured_roofs_and_missing_capacity_are_said():
    for words in (
        "derived or second-hand",
        "l2.bandwidth",
        "roofs measured here",
        "capacity not documented",
        "does not fit",
    ):
        assert words in PAGE


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    bright, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1, 2], ids=["light", "dark by preference", "dark by choice"])
def test_text_has_a_contrast_of_four_and_a_half_and_colours_of_three(theme):
    block = re.findall(r"--paper: #[^}]*", PAGE)[theme]
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
    for ground in ("paper", "card"):
        for text in ("ink", "muted", "accent", "good", "bad"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for name in (
            "dram",
            "matrix",
            "l2",
            "vector",
            "special",
            "attention",
            "product",
            "norm",
            "pointwise",
            "movement",
        ):
            assert contrast(colours[name], colours[ground]) >= 3, (name, ground)


def test_the_strip_shows_expected_times_with_their_interval_beside_the_bound(predicted):
    strip = bar_geometry.strip_of(predicted)
    for target, three in zip(predicted.targets, strip.expected, strict=True):
        execution = bar_geometry.headline_time(predicted, target)
        assert execution.mode == predicted.execution
        places = [float(place[:-1]) for place in (three[1], three[0], three[2])]
        assert places == sorted(places)
        assert strip.axis.at_ratio(execution.time_s) == pytest.approx(places[1] / 100, abs=1e-4)
    assert render(predicted, "html").count("mark t-expected") == 1 + len(predicted.targets)


def test_the_waterfall_begins_at_the_bound_adds_up_and_ends_at_the_expected_time(predicted):
    target = predicted.targets[0]
    for execution in target.executions:
        *causes, total = gap_charts.loss_waterfall(target, execution).bars
        lengths = [float(bar.segments[1].width[:-1]) for bar in causes]
        begins = [float(bar.segments[0].width[:-1]) for bar in causes]
        signs = [1, *(1 if gap_s > 0 else -1 for gap_s in execution.gap_s.values() if gap_s)]
        end = sum(sign * length for sign, length in zip(signs, lengths, strict=True))
        assert begins[0] == 0
        assert end == pytest.approx(float(total.segments[1].width[:-1]), abs=0.05)
        assert execution.time_s == pytest.approx(target.bound_s + sum(execution.gap_s.values()))


def test_operators_reach_shares_of_both_roofs_that_follow_from_bound_and_expected_time(predicted):
    target = predicted.targets[0]
    compute, memory = gap_charts.attained_charts(predicted, target)
    assert [bar.name for bar in compute.bars] == [bar.name for bar in memory.bars]
    rows = [pair for pair in zip(predicted.rows, target.times, strict=True) if pair[0].case.op == compute.bars[0].name]
    spent_s = sum(row.call_count * time.prediction.time_s for row, time in rows)
    dram_s = sum(row.call_count * time.terms_s["dram"] for row, time in rows)
    assert float(memory.bars[0].segments[0].width[:-1]) == pytest.approx(100 * dram_s / spent_s, rel=1e-3)
    assert gap_charts.attained_charts(ANALYSIS, ANALYSIS.targets[0]) == ()
