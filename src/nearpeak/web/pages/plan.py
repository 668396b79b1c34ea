"""Dashboard page: what one training step of a model takes on a cluster, whether it fits, and what to change."""

from nearpeak.errors import NearpeakError
from nearpeak.reports.document import Document
from nearpeak.web.page_view import View, answer_view
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site

USUAL = {
    "model": "llama-3-8b", "on": "8xh100_sxm", "fabric": "", "parallel": "tp=2,zero=1,sp", "precision": "",
    "stack": "megatron-lm",
}  # fmt: skip
"""Values of the form before anything is asked."""
MOST_DEVICES = 65_536
"""Devices of a cluster that the page answers for."""


def build(_: Site, query: Query) -> View:
    """Return the form, and the answer where something was asked."""
    texts = {name: query.text(name, value) for name, value in USUAL.items()}
    numbers = {"sequence": query.number("sequence", 4096), "global_batch": query.number("global_batch")}
    document, error = None, ""
    if query.text("model"):
        try:
            document = _answer(texts, numbers)
        except NearpeakError as problem:
            error = str(problem)
    return answer_view("Plan", "plan", document, asked=texts, numbers=numbers, error=error)


def _answer(texts: dict[str, str], numbers: dict[str, int]) -> Document:
    """Return the answer to the form; a search takes too long for a page."""
    from nearpeak.api.training.job_plan import plan_training, stated_plan
    from nearpeak.errors import SpecError
    from nearpeak.reports.systems.training_plan_report import document_of
    from nearpeak.targets.clusters import cluster_of

    if not texts["parallel"]:
        raise SpecError("parallel: state a plan, e.g. tp=2,zero=1; 'nearpeak plan train' without --parallel searches")
    cluster = cluster_of(texts["on"], texts["fabric"])
    if cluster.device_count > MOST_DEVICES:
        raise SpecError(f"on {texts['on']!r}: this page answers for at most {MOST_DEVICES:,} devices")
    plan = stated_plan(
        texts["parallel"], cluster, stack=texts["stack"], sequence=numbers["sequence"],
        global_batch=numbers["global_batch"], precision=texts["precision"],
    )  # fmt: skip
    return document_of(plan_training(texts["model"], cluster, plan, stack=texts["stack"]))


PAGE = Page(name="plan", path="/plan", build=build, title="Plan", rank=7, is_static=False, is_computed=True)
