"""The dashboard in a real browser: nothing complains, nothing is asked of others, charts show data, keys work."""

import json

import pytest
from tests.sampling import in_turn
from tests.web.conftest import served

from nearpeak.store import open_store

PAGES = (
    "/", "/alerts/1", "/series", "/series?as=charts", "/series/1", "/compare", "/compare?series=1", "/fleet",
    "/efficiency", "/opportunities", "/runs", "/runs/1", "/cases", "/workloads", "/targets", "/targets/h200_sxm",
    "/settings", "/search?q=softmax", "/sign-in",
)  # fmt: skip
NOT_BLANK = """() => Array.from(document.querySelectorAll("[data-chart] canvas")).map((one) => {
  const data = one.getContext("2d").getImageData(0, 0, one.width, one.height).data, seen = new Set();
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3]) seen.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
  return seen.size;
})"""
CONTRAST = """() => {
  const light = (text) => { const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map((one) => {
    const c = one / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const opaque = (one) => { for (let at = one; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor, alpha = colour.match(/[\\d.]+/g).map(Number)[3];
    if (alpha === undefined || alpha === 1) return colour; } return "rgb(255,255,255)"; };
  const low = [];
  for (const one of document.querySelectorAll("main *, header *, footer *")) {
    const own = Array.from(one.childNodes).some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !one.getClientRects().length || one.closest("svg, .sr, .skip, .u-wrap")) continue;
    const style = getComputedStyle(one), [a, b] = [light(style.color), light(opaque(one))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5)
      low.push([one.tagName, one.className, one.textContent.trim().slice(0, 30), ratio.toFixed(2)].join(" "));
  }
  return low;
}"""
UNNAMED = """() => Array.from(document.querySelectorAll("a, button, input, select, iframe, [role=img], [role=region]"))
  .filter((one) => one.type !== "hidden" && one.getClientRects().length)
  .filter((one) => !(one.textContent.trim() || one.ariaLabel || one.title || one.labels?.length ||
                     one.getAttribute("aria-labelledby"))).map((one) => one.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize(("width", "theme"), in_turn([390, 1440], ["light", "dark"]))
def test_pages_fit_have_contrast_and_names_and_nothing_complains(watched, address, width, theme):
    watched.page.set_viewport_size({"width": width, "height": 900})
    watched.page.emulate_media(color_scheme=theme)
    for path in PAGES:
        page = watched.open(address + path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than {width}"
        assert all(count > 3 for count in page.evaluate(NOT_BLANK)), f"{path}: a chart is blank"
        assert watched.faults == [], path
        assert page.evaluate(CONTRAST) == [], path
        assert page.evaluate(UNNAMED) == [], path


def test_a_chart_changes_with_its_data_zooms_and_leads_to_its_run_by_keys(watched, address):
    page = watched.open(f"{address}/series/1")
    draw = "document.querySelector('[data-chart] canvas').toDataURL()"
    before = page.evaluate(draw)
    page.click("[data-fit]")
    assert page.evaluate(draw) != before, "fitted to its values it looks different"
    fitted = page.evaluate(draw)
    page.evaluate("""() => { const one = document.querySelector('[id^="data-series"]');
      const data = JSON.parse(one.textContent); data.y = data.y.map((value, index) => value * (1 + index));
      one.textContent = JSON.stringify(data); window.nearpeakCharts.redraw(); }""")
    assert page.evaluate(draw) != fitted
    page.focus("[data-chart]")
    for key in ("Home", "ArrowRight", "End", "ArrowLeft"):
        page.keyboard.press(key)
    assert "s" in page.inner_text("#said").partition(":")[2], "the value is said"
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/*")


def test_theme_search_filters_and_copying_work(watched, address):
    page = watched.open(f"{address}/targets")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.fill("[data-filter]", "h200")
    assert 0 < page.locator("tbody tr:visible").count() < 10
    page = watched.open(f"{address}/fleet")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark", "the choice is kept"
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("softmax triton")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=softmax+triton")
    page.locator("#table-series a").first.click()
    page.wait_for_url("**/series/*")
    page.locator(".copy").first.click()
    page.wait_for_function("/Copied|Selected/.test(document.querySelector('.copy').textContent)", timeout=5000)


def test_addresses_are_shared_as_they_are(watched, address):
    page = watched.open(f"{address}/series")
    page.select_option("select[name=device]", "NVIDIA H200")
    page.wait_for_url("**device=NVIDIA+H200**")
    rows = page.inner_text("#table-series tbody")
    assert watched.open(page.url).inner_text("#table-series tbody") == rows


def test_without_a_token_keys_move_and_open_but_change_nothing(watched, address, made_up):
    page = watched.open(f"{address}/")
    first = page.get_attribute(".waiting.current", "data-alert")
    page.keyboard.press("j")
    assert page.get_attribute(".waiting.current", "data-alert") != first
    page.keyboard.press("a")
    assert "token" in page.inner_text("#said")
    with open_store(made_up) as store:
        assert {one.status for one in store.findings.alerts()} == {"new"}
    page.keyboard.press("Enter")
    page.wait_for_url("**/alerts/*")


def test_triage_by_keys_end_to_end(watched, copied):
    with served(copied, run_token="np_run") as address, open_store(copied) as store:
        page = watched.page
        page.set_default_timeout(4000)
        page.goto(f"{address}/sign-in#np_run")
        page.click("main button")
        page.wait_for_selector(".waiting.current")
        order = [int(one.get_attribute("data-alert")) for one in page.locator(".waiting").all()]
        status = store.findings.status_of
        page.keyboard.press("a")
        page.wait_for_selector(f'[data-alert="{order[0]}"] .s-acknowledged')
        assert status(order[0]) == "acknowledged"
        page.keyboard.press("s")
        page.keyboard.type("Ada <b>")
        page.keyboard.press("Enter")
        page.locator(".waiting.current .who", has_text="Ada <b>").wait_for()
        page.keyboard.press("j")
        page.keyboard.press("e")
        page.keyboard.type("a new default")
        page.keyboard.press("Enter")
        page.wait_for_selector(f'[data-alert="{order[1]}"]', state="detached")
        assert status(order[1]) == "expected"
        page.keyboard.press("u")
        page.wait_for_selector(f'[data-alert="{order[1]}"] .s-active')
        page.keyboard.press("i")
        page.keyboard.press("Enter")
        page.wait_for_selector(f'[data-alert="{order[1]}"]', state="detached")
        assert status(order[1]) == "invalid-noise"
        left = page.get_attribute(".waiting.current", "data-alert")
        page.keyboard.press("z")
        page.keyboard.press("Enter")
        page.wait_for_selector(f'[data-alert="{left}"]', state="detached")
        watched.open(f"{address}/?snoozed=shown")
        assert page.locator(f'[data-alert="{left}"] .tag', has_text="snoozed").count() == 1
        assert [one.action for one in store.access.audit()][:2] == ["snooze", "invalid"]


def test_hostile_names_run_nothing(watched, hostile):
    with served(hostile) as address:
        for path in ("/", "/series", "/series?as=charts", "/series/1", "/runs/1", "/fleet", "/search?q=script",
                     '/search?q="><script>stolen=1</script>', "/alerts/1", "/settings", "/workloads"):  # fmt: skip
            page = watched.open(address + path)
            assert page.evaluate("window.stolen") is None, path


def test_without_script_tables_and_drawings_are_there(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/series/1")
    assert page.locator("[data-chart] svg path").count() == 1
    assert page.locator("#table-history tbody tr").count() == 60
    context.close()


def test_data_of_a_chart_is_what_the_interface_says(watched, address):
    page = watched.open(f"{address}/series/1")
    drawn = json.loads(page.inner_text("#data-series1"))
    points = page.evaluate("fetch('/api/v1/series/1/history').then((one) => one.json())")["points"]
    assert drawn["y"] == pytest.approx([one["value"] for one in points], rel=1e-5)
