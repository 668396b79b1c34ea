"""A straggling rank that arrives late at collectives while the others wait for it."""

from collections.abc import Iterator

from nearpeak.core.traces.finding_report import Abstained, Counter, Evidence, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import LEAST_RATIO, Scene
from nearpeak.traces.step_terms import COMM

ID = "comm.straggler"


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Take the time away that the ranks wait for the last one: as long as the one that waits least waits for it."""
    skew = scene.executed.skew
    if skew is None:
        yield Abstained(id=ID, reason="one rank of several: pass the traces of the others too (--rank FILE)")
        return
    if skew.straggler is None or skew.collective_count < 3:
        return
    per_step = len(scene.where(lambda item: item.kind == "comm")) / scene.executed.step_count
    waits = sorted(rank.wait_ns for rank in skew.ranks if rank.rank != skew.straggler)
    gain_s, high_s = (wait * 1e-9 / skew.collective_count * per_step for wait in (waits[0], waits[-1]))
    late = next(rank.last_count for rank in skew.ranks if rank.rank == skew.straggler)
    if gain_s < LEAST_RATIO * scene.step_s:
        return
    yield TraceFinding(
        id=ID,
        key=f"rank {skew.straggler}",
        claim=scene.phrased(
            f"rank {skew.straggler} arrives last: the others wait {gain_s * 1e3:.2f} ms of each step and more for it"
        ),
        evidence=(
            Evidence(what="collectives that all ranks have", value=skew.collective_count, unit=""),
            Evidence(what="of them at which it arrives last", value=late, unit=""),
            Evidence(what="median spread of arrivals", value=skew.spread_ns * 1e-9, unit="s"),
        ),
        counter=(
            Counter(what="the network varies while all arrive together", state="not found"),
            Counter(what="clocks of the ranks differ by as much as their arrivals", state="not found"),
        ),
        gain_s=min(gain_s, scene.step_s), gain_low_s=0.0, gain_high_s=min(high_s, scene.step_s), scope="global",
        method="bound", falsifier="swap the hosts of two ranks: the late one stays with the host or with the data",
    )  # fmt: skip


def _has_ranks(scene: Scene) -> bool:
    return scene.executed.skew is not None or (scene.executed.rank_count or 1) > 1


RULE = Rule(id=ID, look=look, judges=(COMM,), concerns=_has_ranks)
