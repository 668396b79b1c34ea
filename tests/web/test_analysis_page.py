"""The page of a predicted step in a real browser: pointing at an operator names its expected time, and it fits."""

import pytest
from tests.unit.reports.test_step_headline import LONG, chain

import nearpeak
from nearpeak.core.answers.size_grid import GridAnswer, SizeGrid
from nearpeak.reports import render
from nearpeak.reports.analysis import html


@pytest.mark.parametrize("width", [1440, 390])
def test_an_operator_is_named_with_its_expected_time_and_the_page_fits(browser, tmp_path, width):
    path = tmp_path / "page.html"
    path.write_text(render(nearpeak.analyze(chain(LONG, batch=8), ["h100_sxm", "l4"]), "html"), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900})
    page, faults = context.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(path.as_uri())
    page.focus("#circles circle[tabindex='0']")
    assert "expected" in page.inner_text("#tip")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ends = "[...document.querySelectorAll('.strip-row .bar-value')].map((one) => one.getBoundingClientRect().right)"
    assert all(right <= width for right in page.evaluate(ends))
    assert faults == []
    context.close()


def grid_of_two_targets():
    answers = tuple(
        GridAnswer((place + 1) * 1e-3, (place + 1) * 2e-3, 1e-3, 3e-3, 1000.0 * (place + 1), place != 3)
        for place in range(7)
    )
    return SizeGrid(
        noun="token", length_name="Cached positions", batches=(1, 8), lengths=(512, 4096),
        formats=("bf16", "fp8 weights"), own=(1, 0, 0), answers=((*answers, None), (None, *answers)),
    )  # fmt: skip


@pytest.mark.parametrize("width", [1440, 390])
def test_controls_choose_among_the_sizes_that_were_computed(browser, tmp_path, width):
    path = tmp_path / "page.html"
    analysis = nearpeak.analyze(chain(LONG, batch=8), ["h100_sxm", "l4"])
    path.write_text(html.render(analysis, grid_of_two_targets()), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900})
    page, faults = context.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(path.as_uri())
    rows = page.locator("#size-table tbody tr")
    assert "2 ms" in rows.nth(0).inner_text()
    page.select_option("#size-length", "1")
    assert "exceeds the memory" in rows.nth(0).inner_text()
    page.select_option("#size-format", "1")
    assert "not shipped at this size" in rows.nth(0).inner_text()
    assert "14 ms" in rows.nth(1).inner_text()
    page.click("#size-own")
    assert "2 ms" in rows.nth(0).inner_text()
    assert page.evaluate("document.querySelector('#sizes .scroll').scrollWidth <= innerWidth")  # no column is hidden
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert faults == []
    context.close()
