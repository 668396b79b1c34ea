"""Answers as pieces of HTML for notebooks, by the documents that terminal and pages show."""

from functools import singledispatch

from nearpeak.core.answers.analysis import Analysis
from nearpeak.core.answers.bound import Bound
from nearpeak.core.answers.prediction import Prediction
from nearpeak.core.runs.measurement import Measurement
from nearpeak.core.traces.finding_report import TraceReport
from nearpeak.reports import analysis_document, case_bound_report, prediction_report
from nearpeak.reports.document import Document, Table, columns
from nearpeak.reports.document.html import to_fragment
from nearpeak.reports.figure_text import known_to
from nearpeak.reports.trace import steps_report
from nearpeak.units import counted, show


def html_of(answer: object) -> str:
    """Return the answer as a piece of HTML.

    Raises:
        NotImplementedError: no document is made of such values.
    """
    return to_fragment(_document_of(answer))


@singledispatch
def _document_of(answer: object) -> Document:
    raise NotImplementedError(f"{type(answer).__name__}: there is no document of it")


@_document_of.register
def _(bound: Bound) -> Document:
    return case_bound_report.document_of("Bound", None, bound)


@_document_of.register
def _(prediction: Prediction) -> Document:
    return prediction_report.document_of("Prediction", None, prediction)


@_document_of.register
def _(analysis: Analysis) -> Document:
    return analysis_document.document_of(analysis)


@_document_of.register
def _(report: TraceReport) -> Document:
    return steps_report.document_of(report)


@_document_of.register
def _(measurement: Measurement) -> Document:
    """Return the time of one call with its interval, or why there is none."""
    subject = f"{measurement.runner} on {measurement.target}: {measurement.outcome.value}"
    blocks = [measurement.note] if measurement.note else []
    lead, rows = "no times", []
    if measurement.has_times:
        estimate = measurement.estimate()
        lead = f"{show(estimate.centre_s, 's')} {known_to(estimate)}, {counted(estimate.sample_count, 'sample')}"
        rows = [
            ("median", estimate.centre_s), ("95 % from", estimate.low_s), ("95 % to", estimate.high_s),
            ("least", estimate.least_s), ("99th percentile", estimate.p99_s),
        ]  # fmt: skip
    table = [Table(columns=columns("figure|", "#time_s|"), rows=rows)] if rows else []
    title = measurement.case.label()
    return Document(title=title, subject=subject, lead=lead, blocks=[*table, *blocks], kicker="Measurement")
