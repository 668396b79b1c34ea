"""The page of a predicted step in a real browser: pointing at an operator names its expected time, and it fits."""

import pytest
from tests.unit.reports.test_step_headline import LONG, chain

import nearpeak
from nearpeak.reports import render


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
