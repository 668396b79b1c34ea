"""Dashboard page: saved precision tables, a model at each number format with bounds, expected and measured times."""

from nearpeak.precision.quantisation.executed_products import EXECUTED_GRAPH, ExecutedGraph
from nearpeak.precision.quantisation.precision_table import PRECISION_TABLE, PrecisionTable
from nearpeak.reports.quantisation import executed_precision_report, precision_table_report
from nearpeak.web.pages import Page
from nearpeak.web.saved_answers import AnswerPage, reader_of

ANSWERS = AnswerPage(
    title="Precision", about="A model at each number format: bound, expected and measured time, bytes, accuracy.",
    command="nearpeak precision MODEL --json > FOLDER/model.json",
    readers={
        PRECISION_TABLE.kind: reader_of(PRECISION_TABLE, PrecisionTable, precision_table_report.document_of),
        EXECUTED_GRAPH.kind: reader_of(EXECUTED_GRAPH, ExecutedGraph, executed_precision_report.document_of),
    },
)  # fmt: skip
PAGE = Page(name="precision", path="/precision", build=ANSWERS.build, title="Precision", rank=8, is_static=False)
