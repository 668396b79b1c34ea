"""Decode step of a service under other formats and degrees, at the same load."""

from collections.abc import Iterator
from dataclasses import replace

from nearpeak.api.serving.service_question import ServiceQuestion
from nearpeak.api.serving.serving_plan import kv_token_count, step_table
from nearpeak.core.systems.service import PlannedServing, ServiceEdit
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.step_batch import StepBatch
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.prediction.models.collective import joined_device_count


def service_edits(
    planned: PlannedServing, shape: TransformerShape, target: Target, question: ServiceQuestion
) -> tuple[ServiceEdit, ...]:
    """Return the changes of formats and degrees, quickest step first; those that do not fit last, with the reason.

    A larger degree has fewer replicas, so that each decodes more sequences of the same load. A change is beyond the
    interval where its step lies outside the 90 % interval of the present one. There are none where no rate meets the
    limits.
    """
    best = planned.best
    if not best.rate_per_s:
        return ()
    layout, replicas = best.decode_layout or best.layout, best.decode_replica_count or best.replica_count
    served_s = best.latencies_s["latency"]["mean"] - best.latencies_s["queue"]["mean"]
    sequences = max(best.rate_per_s * served_s, 1.0)
    inputs, outputs = question.mean_lengths()
    edits = []
    for words, changed, count in _changes(layout, replicas, target, is_pooled=best.decode_layout is not None):
        replica_sequences = max(round(sequences / count), 1)
        batch = StepBatch.of_decode(replica_sequences, kv_count=round(replica_sequences * (inputs + outputs / 2)))
        try:
            table = step_table(shape, target, question.costs, changed)
            budget = question.settings.step_token_count or table.rank.costs.token_budget
            seconds, cache = table.seconds(batch), count * kv_token_count(table.rank, target, token_budget=budget)
        except (SpecError, NotModelledError) as error:
            edits.append(ServiceEdit(words=words, reason=str(error)))
            continue
        if edits and cache < count * batch.decode_kv:
            needed = count * batch.decode_kv
            edits.append(
                ServiceEdit(words=words, reason=f"its caches hold {cache:,} tokens, the load needs {needed:,}")
            )
            continue
        edits.append(ServiceEdit(words=words, step_s=seconds.time_s, low_s=seconds.low_s, high_s=seconds.high_s,
                                 kv_token_count=cache))  # fmt: skip
    now, others = edits[0], edits[1:]
    if now.step_s is None:
        return ()
    return tuple(
        replace(edit, now_s=now.step_s, is_beyond=bool(edit.step_s and not now.low_s <= edit.step_s <= now.high_s))
        for edit in sorted(others, key=lambda edit: edit.step_s or float("inf"))
    )


def _changes(
    layout: ServingLayout, replicas: int, target: Target, *, is_pooled: bool
) -> Iterator[tuple[str, ServingLayout, int]]:
    """Yield the layout as it is, then changes in words, their layouts and replicas."""
    yield "now", layout, replicas
    forms = {"fp8": "fp8_tensor"} if "tensor.fp8" in target.peaks else {"int8": "int8_row"}
    if layout.weight_format in ("bf16", "fp16"):
        for name, form in {**forms, "int4": "int4_weight_only"}.items():
            yield f"--weights {name}", replace(layout, weight_format=form), replicas
    if layout.kv_format in ("bf16", "fp16"):
        yield "--kv-cache fp8", replace(layout, kv_format="fp8_e4m3"), replicas
    if is_pooled or layout.attention_dp > 1:
        return
    for tp, count in ((2 * layout.tp, replicas / 2), (layout.tp // 2, replicas * 2)):
        if 1 <= tp <= joined_device_count(target) and count == int(count):
            ep = tp if layout.ep > 1 else 1
            yield f"--parallel tp={tp}" + (f",ep={ep}" if ep > 1 else ""), replace(layout, tp=tp, ep=ep), int(count)
