"""Documents: one value that a terminal, Markdown and a page write, whatever names it holds."""

import re
from dataclasses import replace

import pytest
from tests.unit.reports.factory import HOSTILE

from nearpeak.reports.analysis.html import hash_of
from nearpeak.reports.document import Cell, Details, Document, Heading, Items, Span, Table, Text, columns
from nearpeak.reports.document.html import to_html
from nearpeak.reports.document.markdown import to_markdown
from nearpeak.reports.document.terminal import to_terminal

TABLE = Table(
    columns=columns("`case|case", "#time_s|time", "#share_ratio|share", "share_bar|of all", ">why"),
    rows=[
        ("gemm m=4096 n=4096", 1.5e-3, 0.75, 0.75, "it is large"),
        (HOSTILE, None, 0.25, 0.25, ""),
        ("a name " + "x" * 200, Cell(value=2.0, text="two", kind="bad"), 0.0, 0.0, "it is long"),
    ],
)  # fmt: skip
DOCUMENT = Document(
    title="A report", subject="of something", lead="It is so.", kicker="Test", figures=[("time", "1 s", "long")],
    blocks=[
        "A paragraph", Heading("A section"), Text(("plain ", Span("bold", "strong")), "muted"),
        Items(("one", Span(HOSTILE, "code"))), TABLE, Details("folded", (TABLE,)),
    ],
)  # fmt: skip
RENDERERS = (to_terminal, to_markdown, to_html)


@pytest.mark.parametrize("render", RENDERERS)
def test_every_renderer_writes_every_value_in_its_unit(render):
    text = render(DOCUMENT)
    for part in ("A report", "It is so.", "A section", "1.5 ms", "75.0 %", "two", "it is large", "folded"):
        assert part in text


@pytest.mark.parametrize("render", RENDERERS)
def test_hostile_names_become_neither_markup_nor_escape_sequences(render):
    text = re.sub(r"`[^`\n]*`", "", render(DOCUMENT)) if render is to_markdown else render(DOCUMENT)
    assert "\x1b" not in text
    assert render is to_terminal or "<script>alert" not in text


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_holds_every_line_and_pads_names_and_figures(width):
    lines = to_terminal(DOCUMENT, width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


def test_options_are_folded_after_a_comma_not_inside_a_word():
    plan = "dp=8,micro=32,sharding=fsdp,framework=fsdp2"
    table = Table(columns=columns("~`plan", "~memory"), rows=[(plan, "81.9 GB free " * 4)])
    cells = [
        line[:32].split("  ")[0] for line in to_terminal(Document(title="t", blocks=[table]), width=50).splitlines()
    ]
    parts = [cell for cell in cells if "=" in cell]
    assert "".join(parts) == plan
    assert len(parts) > 1
    assert all(part.endswith(",") for part in parts[:-1])


def test_colours_appear_only_on_request_and_end_where_they_began():
    text = to_terminal(DOCUMENT, colour=True)
    assert "\x1b[31mtwo\x1b[0m" in text
    assert re.sub(r"\x1b\[[0-9;]*m", "", text) == to_terminal(DOCUMENT)


def test_a_table_shows_its_first_rows_in_a_terminal_and_all_of_them_elsewhere():
    table = Table(
        columns=columns("name", "#count"), rows=[(str(row), row) for row in range(5)], brief_count=2, rest="3 more"
    )
    document = Document(title="t", blocks=[table])
    assert "3 more" in to_terminal(document)
    assert [line.split() for line in to_terminal(document).splitlines() if line.startswith("4")] == []
    assert "| 4 | 4 |" in to_markdown(document)
    assert "3 more" not in to_html(document)


def test_a_page_asks_nothing_of_a_network_and_defines_the_colours_that_it_uses():
    page = to_html(DOCUMENT)
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)=["']https?:""", page)
    assert set(re.findall(r"var\((--[a-z0-9-]+)", page)) <= set(re.findall(r"(--[a-z0-9-]+)\s*:", page))


def test_a_page_has_a_menu_of_its_parts_and_a_switch_that_its_policy_lets_run():
    page = to_html(Document(title="A report", blocks=[Heading("One & two"), "text", Heading("Three"), "more"]))
    assert re.findall(r'<a href="#(part-\d)">(.*?)</a>', page) == [("part-0", "One &amp; two"), ("part-1", "Three")]
    assert re.findall(r'<h2 id="(part-\d)">', page) == ["part-0", "part-1"]
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert 'getElementById("theme")' in script
    assert f"script-src '{hash_of(script)}'" in page


def test_lines_of_a_page_break_neither_inside_an_option_nor_inside_a_short_name():
    page = to_html(Document(title="A report", blocks=["pass --no-check or tp=2,schedule=interleaved:4", "a/" * 20]))
    assert '<span class="name">--no-check</span>' in page
    assert "tp=2,<wbr>schedule=interleaved:4</p>" in page
    assert f'<span class="long">{"a/" * 20}</span>' in page


def test_a_terminal_writes_folded_blocks_or_their_summary():
    document = Document(title="A report", blocks=["short", Details("--why for more", ("long", Details("", ("deep",))))])
    assert to_terminal(document).splitlines() == ["A report", "short", "--why for more"]
    assert to_terminal(document, is_unfolded=True).splitlines() == ["A report", "short", "long", "deep"]


def test_rows_of_many_letters_name_their_cells_for_phones():
    wide = Table(columns=columns("a|Case", "#b_s|Time", "c|Why"), rows=[("gemm", 1e-3, "long " * 12)])
    narrow = Table(columns=columns("a|Case", "#b_s|Time"), rows=[("gemm", 1e-3)])
    page = to_html(Document(title="A report", blocks=[wide]))
    assert '<td class="num" data-title="Time">1 ms</td><td class="line" data-title="Why">' in page
    for table in (narrow, replace(wide, is_matrix=True)):
        assert "data-title=" not in to_html(Document(title="A report", blocks=[table])).partition("<body>")[2]
