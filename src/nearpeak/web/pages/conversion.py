"""Dashboard page: saved engine coverage, the pieces of a conversion with the cost of its breaks."""

from nearpeak.conversion.engine_parts import ENGINE_COVERAGE, EngineCoverage
from nearpeak.reports.conversion.engine_coverage_report import document_of
from nearpeak.web.pages import Page
from nearpeak.web.saved_answers import AnswerPage, reader_of

ANSWERS = AnswerPage(
    title="Conversion", about="What an engine takes of a model, in which pieces, and what the breaks cost.",
    command="nearpeak coverage MODEL --engine tensorrt:10.1 --target DEVICE --json > FOLDER/model.json",
    readers={ENGINE_COVERAGE.kind: reader_of(ENGINE_COVERAGE, EngineCoverage, document_of)},
)  # fmt: skip
PAGE = Page(name="conversion", path="/conversion", build=ANSWERS.build, title="Conversion", rank=8, is_static=False)
