"""Fills a store with a synthetic history of real cases: bound over attained ratio, plus noise."""

from dataclasses import dataclass
from functools import cache

from nearpeak.core.work.case import Case
from nearpeak.errors import NotModelledError
from nearpeak.history.demo_series import Planted, Subject, demo_runs, planted
from nearpeak.history.stored_devices import target_of_device
from nearpeak.ops import case, label_of
from nearpeak.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledStore:
    """Result of filling a store."""

    run_count: int
    """Runs that were not there before."""
    planted: tuple[Planted, ...]
    """Changes that the history holds on purpose."""


def _subject(case: Case, owner: str, runners: dict[str, float], *, clocked: bool) -> Subject:
    return Subject(
        case=case, label=label_of(case), owner=owner, runners=tuple(runners.items()), clocked=clocked,
    )  # fmt: skip


SUBJECTS = (
    _subject(case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), "kernels",
             {"torch_cuda": 0.74, "triton": 0.68}, clocked=True),
    _subject(case("gemm", m=2048, n=50257, k=4096, dtype="bf16"), "kernels", {"torch_cuda": 0.52}, clocked=True),
    _subject(case("gemm", m=16, n=4096, k=16384, dtype="bf16"), "serving", {"torch_cuda": 0.45}, clocked=False),
    _subject(case("attention", batch=4, heads=32, q=2048, kv=2048, dim=128, dtype="bf16"), "kernels",
             {"torch_cuda": 0.48, "triton": 0.61}, clocked=True),
    _subject(case("layer_norm", rows=8192, hidden=8192, dtype="bf16"), "kernels", {"torch_cuda": 0.81}, clocked=False),
    _subject(case("softmax", rows=8192, columns=8192, dtype="bf16"), "kernels",
             {"torch_cuda": 0.66, "triton": 0.83}, clocked=False),
    _subject(case("elementwise", elements=1 << 26, function="add", b=1 << 26, dtype="bf16"), "platform",
             {"torch_cuda": 0.88}, clocked=False),
    _subject(case("copy", elements=1 << 26, dtype="bf16"), "platform", {"torch_cuda": 0.86}, clocked=False),
)  # fmt: skip
"""Cases of the demonstration."""


def filled(store: Store, *, commits: int = 120, seed: int = 0) -> FilledStore:
    """Put the history into `store`, all of it or nothing; what is there already stays as it is."""
    done = store.ingest_all(tuple(demo_runs(SUBJECTS, bound_on, commits=commits, seed=seed)))
    owners = {subject.case.digest: subject.owner for subject in SUBJECTS}
    for owner in sorted(set(owners.values())):
        mine = [series.id for series in store.series() if owners.get(series.case) == owner and not series.owner]
        store.set_owner(mine, owner)
    return FilledStore(run_count=sum(run.new for run in done), planted=planted(commits))


@cache
def bound_on(case: Case, device: str) -> float:
    """Return the bound of a case in seconds on the device with this driver name."""
    from nearpeak.bounds.case_bound import case_bound

    target = target_of_device(device)
    if target is None:
        raise NotModelledError(f"demo-history: no device file describes {device!r}")
    return case_bound(case, target).time_s
