"""Dashboard page: time, power and energy of a model in every power mode of a board, and which mode to choose."""

from functools import lru_cache
from threading import Lock

from nearpeak.core.edge.mode_plan import PlannedEdge
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.targets.power_modes import boards_with_modes
from nearpeak.web.page_view import View, parts_of
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site
from nearpeak.web.workload_reports import cases_of

USUAL = {
    "model": "resnet-50", "on": "jetson_agx_orin", "engine": "tensorrt", "minimise": "energy", "scope": "wall",
    "deadline": "", "power": "", "every": "", "idle": "",
}  # fmt: skip
"""Values of the form before anything is asked."""
LIMITS = {"deadline": "s", "power": "W", "every": "s", "idle": "W"}
"""Unit of each limit."""
MOST_BATCH, CAPTURE_S, CAPTURE_BYTES = 256, 60.0, 8 << 30
"""Inputs of a run, and time and memory of a capture that the page answers for."""
_CAPTURING = Lock()
"""Held while a model is captured: one at a time, so that other pages keep their turns."""


def build(site: Site, query: Query) -> View:
    """Return the form, and the answer where something was asked."""
    from nearpeak.api.edge.edge_plan import OBJECTIVES
    from nearpeak.core.edge.scoped_power import PowerScope
    from nearpeak.frontends.huggingface.published_models import MODELS
    from nearpeak.reports.systems.edge_plan_report import document_of

    texts = {name: query.text(name, value) for name, value in USUAL.items()}
    batch = query.number("batch", 1)
    document, error = None, ""
    if query.text("model"):
        try:
            document = document_of(_planned(site, texts, batch))
        except NearpeakError as problem:
            error = str(problem)
    tables, notes = parts_of(document) if document else ((), ())
    return View(
        title="Boards", template="boards", tables=tables,
        context={
            "asked": texts, "batch": batch, "error": error, "document": document, "tables": tables, "notes": notes,
            "boards": boards_with_modes(), "objectives": OBJECTIVES, "scopes": [scope.value for scope in PowerScope],
            "models": MODELS.names(),
        },
    )  # fmt: skip


def _planned(site: Site, texts: dict[str, str], batch: int) -> PlannedEdge:
    """Return the answer to the form; files are not read, and measured modes belong to the command line."""
    from nearpeak.api.edge.edge_plan import EdgeJob, plan_edge
    from nearpeak.core.edge.scoped_power import scope_of
    from nearpeak.core.work.engine_choice import engine_of
    from nearpeak.frontends.huggingface.published_models import MODELS

    if texts["on"] not in boards_with_modes():
        raise SpecError(f"board {texts['on']!r}: has no power modes; boards are {', '.join(boards_with_modes())}")
    if not 1 <= batch <= MOST_BATCH:
        raise SpecError(f"batch {batch}: this page answers for 1 to {MOST_BATCH}")
    limits = {name: _limit(name, texts[name]) for name in LIMITS}
    if limits["idle"] and not limits["every"]:
        raise SpecError("idle: the board rests between runs that come every so often; give both, e.g. 100ms")
    if texts["engine"]:
        engine_of(texts["engine"])
    scope, is_model = scope_of(texts["scope"]), texts["model"] in MODELS.names()
    step = _captured(texts["model"], texts["engine"], batch) if is_model else _stored(site, texts)
    job = EdgeJob(
        minimise=texts["minimise"], deadline_s=limits["deadline"], power_w=limits["power"],
        idle_w=limits["idle"] or 0.0, period_s=limits["every"] or 0.0, item_count=batch if is_model else 1,
        item="inference" if is_model else "pass",
    )  # fmt: skip
    return plan_edge(step, texts["on"], scope, job=job)


def _limit(name: str, text: str) -> float | None:
    """Return a limit in its unit; none where it is empty.

    >>> _limit("deadline", "33ms"), _limit("power", "")
    (0.033, None)
    """
    from nearpeak.units import parse

    if not text:
        return None
    try:
        value = parse(text, LIMITS[name])
    except SpecError as error:
        raise SpecError(f"{name}: {error}") from None
    if value <= 0:
        raise SpecError(f"{name} {text!r}: is not above 0")
    return value


@lru_cache(maxsize=32)
def _captured(model: str, engine: str, batch: int) -> Workload:
    """Return the forward step of a published model, captured in a process of its own.

    Raises:
        SpecError: another is being captured.
    """
    from nearpeak.api.questions import capture_with
    from nearpeak.core.work.capture_options import CaptureOptions

    if not _CAPTURING.acquire(blocking=False):
        raise SpecError(f"{model}: another model is being captured; come again in half a minute")
    try:
        options = CaptureOptions(
            batch=batch, engine=engine or None, timeout_s=CAPTURE_S, memory_bytes=CAPTURE_BYTES
        )  # fmt: skip
        return capture_with(model, options)
    finally:
        _CAPTURING.release()


def _stored(site: Site, texts: dict[str, str]) -> Workload:
    """Return the cases that the store holds of a workload, each once, as the engine runs them."""
    from nearpeak.core.work.engine_choice import engine_of
    from nearpeak.frontends.inference_engine.engine_lowering import lowered

    name, known = texts["model"], site.remembered("choices", site.store.browsing.choices)["workload"]
    cases = cases_of(site.store.browsing.series((), {"workload": name}, limit=5000).rows) if name in known else ()
    if not cases:
        raise SpecError(f"{name!r}: is neither a model that is known by name nor a workload of this store with cases")
    calls = tuple(Call(case=case, operator=case.op, phase=case.phase) for case in cases)
    workload = Workload(name=name, step="sweep", calls=calls)
    return lowered(workload, engine_of(texts["engine"])) if texts["engine"] else workload


PAGE = Page(name="boards", path="/boards", build=build, title="Boards", rank=8, is_static=False, is_computed=True)
