"""Dashboard page: what a service of a language model reaches, at which latency, and for which price."""

from nearpeak.errors import NearpeakError
from nearpeak.reports.document import Document
from nearpeak.web.page_view import View, answer_view
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site

USUAL = {
    "model": "llama-3.1-8b", "on": "1xh100_sxm", "engine": "vllm_v1", "settings": "chunk=2048,max_batch=64",
    "parallel": "tp=1", "weights": "bf16", "rate": "4/s", "price": "",
}  # fmt: skip
"""Values of the form before anything is asked."""
MOST_RATE, MOST_TOKENS, MOST_SEQUENCES = 100.0, 32_768, 256
"""Requests per second, tokens of a request and running sequences that the page answers for."""


def build(_: Site, query: Query) -> View:
    """Return the form, and the answer where something was asked."""
    texts = {name: query.text(name, value) for name, value in USUAL.items()}
    numbers = {"input": query.number("input", 1024), "output": query.number("output", 128)}
    document, error = None, ""
    if query.text("model"):
        try:
            document = _answer(texts, numbers)
        except NearpeakError as problem:
            error = str(problem)
    return answer_view("Service", "service", document, asked=texts, numbers=numbers, error=error)


def _answer(texts: dict[str, str], numbers: dict[str, int]) -> Document:
    """Return the answer to the form for one layout under one load; searches take too long for a page."""
    from nearpeak.api.serving.service_plan import Fleet, plan_serving, weight_scheme
    from nearpeak.api.serving.service_question import ServiceQuestion
    from nearpeak.core.systems.service_settings import settings_of
    from nearpeak.core.systems.service_words import price_of, rate_of, replica_of
    from nearpeak.errors import SpecError
    from nearpeak.reports.systems.serving_plan_report import document_of
    from nearpeak.targets import target_of
    from nearpeak.targets.clusters import counted_devices

    rate, settings = rate_of(texts["rate"]), settings_of(texts["settings"])
    tokens = numbers["input"] + numbers["output"]
    if not 0 < rate <= MOST_RATE or not 1 <= tokens <= MOST_TOKENS or min(numbers.values()) < 1:
        raise SpecError(f"this page answers for rates up to {MOST_RATE:g}/s and requests up to {MOST_TOKENS:,} tokens")
    if not 1 <= settings.sequence_count <= MOST_SEQUENCES or not texts["parallel"]:
        raise SpecError(f"this page needs a layout, and max_batch=1 to {MOST_SEQUENCES} in the settings")
    if settings.step_token_count > MOST_TOKENS or settings.context_token_count > MOST_TOKENS:
        raise SpecError(f"this page answers for chunks and contexts up to {MOST_TOKENS:,} tokens")
    if texts["engine"].endswith(".toml"):
        raise SpecError(f"engine {texts['engine']!r}: this page reads no files; name a family")
    count, target = counted_devices(texts["on"])
    layout = replica_of(texts["parallel"], weight_scheme(texts["weights"]))
    fleet = Fleet(target=target_of(target), device_count=count or 1, layouts=(layout,), base=layout,
                  usd_per_device_hour=price_of(texts["price"], target))  # fmt: skip
    question = ServiceQuestion(
        engine=texts["engine"], settings=settings, rate_per_s=rate, input_tokens=numbers["input"],
        output_tokens=numbers["output"], seeds=(0,),
    )  # fmt: skip
    return document_of(plan_serving(texts["model"], fleet, question))


PAGE = Page(name="service", path="/service", build=build, title="Service", rank=8, is_static=False, is_computed=True)
