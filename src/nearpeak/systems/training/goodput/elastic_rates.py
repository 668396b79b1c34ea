"""Step rates of a job that goes on without broken nodes: fewer replicas, or pipelines split over fewer stages."""

from collections.abc import Sequence

from nearpeak.errors import SpecError
from nearpeak.systems.training.stage_split import StageLayer, split_stages


def shrink_rates(replica_count: int, least_replicas: int = 1) -> tuple[float, ...]:
    """Return the step rates of a job that drops a data-parallel replica for every missing node, the batch unchanged.

    >>> shrink_rates(4, 2)
    (1.0, 0.75, 0.5)
    """
    if not 1 <= least_replicas <= replica_count:
        raise SpecError(f"elastic policy: {least_replicas} of {replica_count} replicas is no size to shrink to")
    return tuple((replica_count - lost) / replica_count for lost in range(replica_count - least_replicas + 1))


def resplit_rates(
    layers: Sequence[StageLayer], stage_count: int, replica_count: int, most_missing: int
) -> tuple[float, ...]:
    """Return the step rates of a job whose pipelines split their layers anew over the stages that are left.

    Missing nodes, one stage each, are dealt out over the replicas; micro-batches are dealt out by the replicas' speeds,
    which are those of their longest stages. Bubbles are taken to be the same share as before.

    Raises:
        SpecError: a replica would be left without a stage.

    >>> layers = [StageLayer(forward_s=1.0, backward_s=2.0)] * 12
    >>> resplit_rates(layers, 4, 2, 2)
    (1.0, 0.875, 0.75)
    """
    if not 0 <= most_missing <= replica_count * (stage_count - 1):
        raise SpecError(
            f"elastic policy: {most_missing} nodes missing of {replica_count} pipelines with {stage_count} stages "
            f"leave one without a stage; at most {replica_count * (stage_count - 1)} can be"
        )
    full = max(split_stages(layers, stage_count).stage_s)
    speeds = [full / max(split_stages(layers, stages).stage_s) for stages in range(stage_count, 0, -1)]
    rates = []
    for missing in range(most_missing + 1):
        each, more = divmod(missing, replica_count)
        total = more * speeds[each + 1] if more else 0.0
        rates.append((total + (replica_count - more) * speeds[each]) / replica_count)
    return tuple(rates)
