"""The page of a trace in a real browser: the timeline zooms and moves by keys, wheel and drag, and fits a phone."""

import pytest

pytest.importorskip("torch")
from benchmarks import _planted_traces as planted
from benchmarks.planted_traces import reported

from nearpeak.reports.document.html import to_html
from nearpeak.reports.trace.steps_report import document_of


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    path = folder / "page.html"
    path.write_text(to_html(document_of(reported(planted.host_sync(5), folder / "trace.json"))), encoding="utf-8")
    return path


@pytest.fixture(params=[1280, 390], ids=["wide", "phone"])
def opened(browser, page_file, request):
    """The page at a width, and what it complained about or asked for."""
    context = browser.new_context(viewport={"width": request.param, "height": 844})
    page, faults = context.new_page(), []
    page.on("console", lambda one: faults.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda one: None if one.url.startswith(("file:", "data:")) else faults.append(one.url))
    page.goto(page_file.as_uri())
    page.locator("#picture").scroll_into_view_if_needed()
    yield page
    assert faults == []
    context.close()


def shown_ns(page):
    """Return the length of what the timeline shows."""
    number, unit = page.inner_text("#span").split(" of ")[0].split()
    return float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]


def test_the_page_fits_and_the_timeline_zooms_and_moves_by_keys(opened):
    page, whole = opened, shown_ns(opened)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.focus("#picture")
    for key, wanted in (("+", 0.5), ("+", 0.25), ("-", 0.5), ("0", 1.0)):
        page.keyboard.press(key)
        assert shown_ns(page) == pytest.approx(whole * wanted, rel=0.01)
    page.keyboard.press("+")
    before = page.evaluate("document.getElementById('picture').toDataURL()")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.getElementById('picture').toDataURL()") != before
    assert shown_ns(page) == pytest.approx(whole / 2, rel=0.01)


def test_the_wheel_zooms_where_it_points_and_at_the_whole_the_page_scrolls(opened):
    page, whole = opened, shown_ns(opened)
    box = page.locator("#picture").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    text = page.inner_text("#span")
    page.mouse.wheel(0, -100)
    page.wait_for_function("(text) => document.getElementById('span').textContent !== text", arg=text)
    assert shown_ns(page) == pytest.approx(whole * 0.8, rel=0.02)
    page.dblclick("#picture")
    assert shown_ns(page) == pytest.approx(whole)
    top = page.evaluate("scrollY")
    page.mouse.wheel(0, 200)
    page.wait_for_function("(top) => scrollY > top", arg=top)
    assert shown_ns(page) == pytest.approx(whole)


def test_dragging_moves_and_pointing_names_what_is_there(opened):
    page = opened
    page.click("[data-zoom='0.5']")
    box = page.locator("#picture").bounding_box()
    before = page.evaluate("document.getElementById('picture').toDataURL()")
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 25)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 25, steps=4)
    page.mouse.up()
    assert page.evaluate("document.getElementById('picture').toDataURL()") != before
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 25)
    assert "Point at a slice" not in page.inner_text("#under")


def test_an_event_of_a_finding_leads_to_its_slice(opened):
    page, whole = opened, shown_ns(opened)
    page.locator("details summary").first.click()
    page.locator("button.event").first.click()
    assert shown_ns(page) < whole
    assert "Point at a slice" not in page.inner_text("#under")
    assert page.evaluate("document.activeElement.id") == "picture"
    # It scrolls smoothly.
    page.wait_for_function(
        "() => { const { top } = document.getElementById('picture').getBoundingClientRect();"
        " return top >= 0 && top < innerHeight; }"
    )


def test_the_button_switches_light_and_dark_and_draws_the_timeline_anew(opened):
    before = opened.locator("#picture").screenshot()
    opened.click("#theme")
    opened.wait_for_timeout(100)
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 26)"
    assert opened.locator("#picture").screenshot() != before
    assert opened.locator(".links a").count() >= 5
