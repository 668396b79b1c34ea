"""The HTML report in a real browser: it runs, asks nothing of the network, and shows what the analysis says."""

import html
import re
import shutil
import subprocess

import pytest
from tests.unit.reports import factory

from nearpeak.reports import render

BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no browser found; any of {', '.join(BROWSERS)} will do")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--virtual-time-budget=4000",
)
ANALYSIS = factory.analysis(measured=True)


def browse(folder, *flags, text=None, fragment="", size=(1440, 1000)):
    """Open the page in a fresh profile; return what the browser prints and what it logs."""
    page = folder / "report.html"
    page.write_text(text or render(ANALYSIS, "html"), encoding="utf-8")
    command = [
        BROWSER,
        *FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={size[0]},{size[1]}",
        *flags,
        page.as_uri() + fragment,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def dom(tmp_path_factory):
    return browse(tmp_path_factory.mktemp("page"), "--dump-dom")


def rows_of(page):
    body = re.search(r'(?s)<table id="table">.*?<tbody>(.*?)</tbody>', page)[1]
    texts = [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"(?s)<td.*?>(.*?)</td>", row)]
        for row in body.split("<tr>")[1:]
    ]
    return sorted(tuple(html.unescape(cell).strip() for cell in row) for row in texts)


def test_script_ran_without_an_error_on_the_console(dom):
    page, log = dom
    assert 'data-ready="yes"' in page
    assert "CONSOLE" not in log


def test_names_stay_text_after_the_script_has_drawn_them(dom):
    page, _ = dom
    assert page.count("<script") == 2
    assert "&lt;script&gt;alert(1)" in page


def test_every_plotted_row_is_a_circle_and_the_rest_is_listed(dom):
    page, _ = dom
    drawn, listed = page.count("<circle "), re.search(r"(\d+) cases under", page)
    assert f'data-circles="{drawn}"' in page
    assert drawn + int(listed[1]) == len(ANALYSIS.rows)


def test_script_writes_the_same_figures_as_the_page_without_script(dom):
    assert rows_of(dom[0]) == rows_of(render(ANALYSIS, "html"))


def test_address_opens_the_page_on_another_target(tmp_path):
    page, log = browse(tmp_path, "--dump-dom", fragment="#target=6")
    assert 'data-target="6"' in page
    assert "CONSOLE" not in log
    lede = re.findall(r'(?s)<p class="lede for-target" data-target="6">.*?</p>', page)
    assert lede, "the headline of the chosen target is hidden"
    assert page.count('class="implausible"') == 2
    assert "implausible</td>" in page


def acted(script):
    """Return the page with a script at its end, and without the policy that would refuse that script."""
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", render(ANALYSIS, "html"))
    return page.replace("</body>", f"<script>{script}</script></body>")


def test_filter_sorting_and_side_by_side_columns_work(tmp_path):
    script = """
      const filter = document.getElementById("filter");
      filter.value = "gemm lm_head";
      filter.dispatchEvent(new Event("input", { bubbles: true }));
      document.querySelector('th button[data-key="calls"]').click();
      document.getElementById("wide").click();
    """
    page, log = browse(tmp_path, "--dump-dom", text=acted(script))
    assert "CONSOLE" not in log
    rows = rows_of(page)
    assert len(rows) == 2
    assert {len(row) for row in rows} == {2 + len(ANALYSIS.targets) + 3}
    assert "2 of 2 shown" in page


def test_arrow_keys_move_between_circles_and_show_their_words(tmp_path):
    script = """
      const circles = () => document.querySelector('#circles circle[tabindex="0"]');
      circles().focus();
      circles().dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
      document.documentElement.dataset.focused = document.activeElement.dataset.row;
    """
    page, log = browse(tmp_path, "--dump-dom", text=acted(script))
    assert "CONSOLE" not in log
    totals = {i: ANALYSIS.targets[0].times[i].bound_s * row.call_count for i, row in enumerate(ANALYSIS.rows)}
    second = sorted(totals, key=lambda i: (-totals[i], i))[1]
    assert f'data-focused="{second}"' in page
    assert re.search(r'<div id="tip"[^>]*>[^<]*a call × ', page)


def test_two_thousand_rows_show_a_capped_table_that_says_so(tmp_path):
    many = factory.analysis(rows=factory.many_rows(2000), devices=factory.DEVICES * 2)
    page, log = browse(tmp_path, "--dump-dom", text=render(many, "html"))
    assert "CONSOLE" not in log
    assert "200 of 2,000 shown" in page
    assert len(rows_of(page)) == 200


@pytest.mark.parametrize("size", [(1440, 1000), (390, 844)], ids=["desk", "phone"])
def test_page_is_drawn_and_never_wider_than_the_window(tmp_path, size):
    script = "document.documentElement.dataset.wide = document.documentElement.scrollWidth - innerWidth;"
    page, _ = browse(tmp_path, "--dump-dom", text=acted(script), size=size)
    assert int(re.search(r'data-wide="(-?\d+)"', page)[1]) <= 0
    picture = tmp_path / "page.png"
    browse(tmp_path, f"--screenshot={picture}", size=size)
    # A blank page of this size compresses to a few kilobytes.
    assert picture.stat().st_size > 25_000


def test_without_script_the_page_is_drawn_with_every_target(tmp_path):
    page = render(ANALYSIS, "html")
    assert all(f'<p class="lede for-target" data-target="{number}"' in page for number in range(len(ANALYSIS.targets)))
    assert ".for-target[hidden]:not(.roof){display:block!important}" in page
    # A frame with an empty sandbox runs no script, as a browser with scripts turned off.
    style = "width:100%;height:990px;border:0"
    frame = f'<body style="margin:0"><iframe sandbox style="{style}" srcdoc="{html.escape(page)}"></iframe>'
    picture = tmp_path / "page.png"
    # In the same process, so that the picture is not taken before the frame is drawn.
    browse(tmp_path, "--disable-features=IsolateSandboxedIframes", f"--screenshot={picture}", text=frame)
    assert picture.stat().st_size > 25_000
