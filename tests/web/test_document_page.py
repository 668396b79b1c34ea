"""The tables of a report's page in a real browser: on a phone no cell lies beyond the edge, nor makes its row tall."""

import pytest

from nearpeak.reports.document import Document, Table, columns
from nearpeak.reports.document.html import to_html

WHY = "The clock fell while this ran, which the samples before it say as well as those after it. " * 3
TABLE = Table(
    columns=columns("name|Case", "#time_s|Time", "#part_bar|", "#left_ratio|Left", "`file|File", "why|Why"),
    rows=[(f"gemm m={4096 + row} n=4096 k=4096", 1e-3, row / 8, 0.5, "src/model/attention.py:120", WHY)
          for row in range(6)],
)  # fmt: skip
SMALL = Table(columns=columns("name|Case", "#time_s|Time"), rows=[("gemm", 1e-3), ("conv", 2e-3)])
CELLS = """[...document.querySelectorAll('.wide tr')].filter((row) => row.querySelector('td')).map((row) => ({
  height: row.getBoundingClientRect().height,
  right: Math.max(...[...row.children].map((cell) => cell.getBoundingClientRect().right)),
  texts: [...row.children].map((cell) => cell.innerText),
  tops: [...row.children].map((cell) => cell.getBoundingClientRect().top) }))"""


@pytest.mark.parametrize("width", [1440, 390])
def test_no_row_is_as_tall_as_a_text_beyond_the_edge(browser, tmp_path, width):
    path = tmp_path / "page.html"
    path.write_text(to_html(Document(title="A report", kicker="Report", blocks=[TABLE, SMALL])), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    rows = page.evaluate(CELLS)
    assert len(rows) == 8
    assert all(row["right"] <= width for row in rows), "every column can be seen without scrolling"
    assert all(row["height"] < 330 for row in rows)
    assert len({*rows[-1]["tops"]}) == 1, "a table that fits stays a table"
    assert (len({*rows[0]["tops"]}) > 1) == (width == 390)
    assert "A report" in page.inner_text("h1")
    context.close()
