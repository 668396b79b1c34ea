"""Dashboard page: what one training step of a model takes on a cluster, whether it fits, and what to change."""

from nearpeak.errors import NearpeakError
from nearpeak.reports.document import Document
from nearpeak.web.page_view import View, answer_view
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site

USUAL = {
    "model": "llama-3-8b", "on": "8xh100_sxm", "fabric": "", "parallel": "tp=2,zero=1,sp", "precision": "bf16",
    "stack": "megatron-lm",
}  # fmt: skip
"""Values of the form before anything is asked."""
MOST_DEVICES = 65_536
"""Devices of a cluster that the page answers for."""


def build(_: Site, query: Query) -> View:
    """Return the form, and the answer where something was asked."""
    asked = {name: query.text(name, value) for name, value in USUAL.items()}
    numbers = {"sequence": query.number("sequence", 4096), "global_batch": query.number("global_batch")}
    document, error = None, ""
    if query.text("model"):
        try:
            document = _answer(asked, numbers)
        except NearpeakError as problem:
            error = str(problem)
    return answer_view("Plan", "plan", document, asked=asked, numbers=numbers, error=error)


def _answer(asked: dict[str, str], numbers: dict[str, int]) -> Document:
    """Return the answer to the form; a search takes too long for a page."""
    from nearpeak.api.training.job_plan import plan_training, stated_plan
    from nearpeak.errors import SpecError
    from nearpeak.reports.systems.training_plan_report import document_of
    from nearpeak.targets.clusters import cluster_of

    if not asked["parallel"]:
        raise SpecError("parallel: state a plan, e.g. tp=2,zero=1; 'nearpeak plan train' without --parallel searches")
    cluster = cluster_of(asked["on"], asked["fabric"])
    if cluster.device_count > MOST_DEVICES:
        raise SpecError(f"on {asked['on']!r}: this page answers for at most {MOST_DEVICES:,} devices")
    plan = stated_plan(
        asked["parallel"], cluster, stack=asked["stack"], sequence=numbers["sequence"],
        global_batch=numbers["global_batch"], precision=asked["precision"],
    )  # fmt: skip
    return document_of(plan_training(asked["model"], cluster, plan, stack=asked["stack"]))


PAGE = Page(name="plan", path="/plan", build=build, title="Plan", rank=7, is_static=False, is_computed=True)
