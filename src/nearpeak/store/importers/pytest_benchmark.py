"""Importer of pytest-benchmark JSON (`--benchmark-json`, `.benchmarks/`); times are seconds per call."""

from pathlib import Path

from nearpeak.core.history.stored_run import TIME, Device, Revision, SampleSet, Testbed
from nearpeak.store.foreign_runs import ForeignRun, Rows, epoch_ns, foreign
from nearpeak.store.json_tree import Tree

_VERSION = 2


def _read(tree: Tree, _path: Path) -> tuple[ForeignRun, ...]:
    """Return the run of the file; of a benchmark without `data` only the median is imported, with a note."""
    samples, rows = list[SampleSet](), Rows(tree)
    for row in tree.get("benchmarks").each():
        with rows.guarded():
            samples.append(_samples(row))
    machine = tree.get("machine_info")
    revision, branch = _revision(tree)
    started = tree.maybe("datetime")
    components = (
        ("python", machine.maybe("python_version")), ("system", machine.maybe("system")),
        ("kernel", machine.maybe("release")), ("pytest-benchmark", tree.maybe("version")),
    )  # fmt: skip
    stack = tuple((name, value.text()) for name, value in components if value is not None and value.text())
    return (
        ForeignRun(
            device=_device(machine), samples=tuple(samples), revision=revision, branch=branch, stack=stack,
            started_ns=epoch_ns(started) if started else 0, lost=(*rows.lost(samples), *tree.lost()),
        ),
    )  # fmt: skip


def _samples(row: Tree) -> SampleSet:
    stats, label = row.get("stats"), row.get("fullname").text()
    data = stats.maybe("data")
    values = data.positives() if data else ()
    rounds = int(stats.get("rounds").number())
    note = "" if values else f"summary of {rounds} rounds: their median alone is known"
    options = row.maybe("options")
    policy = {key: value.plain() for key, value in options.entries() if value.raw is not None} if options else {}
    iterations = stats.maybe("iterations")
    parameters = row.maybe("params")
    stats.get("median").positive()
    return SampleSet(
        case=f"pytest-benchmark:{label}", label=label, metric=TIME,
        testbed=Testbed(name="pytest-benchmark", policy=policy),
        values=values or (stats.get("median").positive(),),
        parameters={
            **({key: value.plain() for key, value in parameters.entries()} if parameters else {}),
            **({"iterations": int(iterations.number())} if iterations else {}),
        },
        workload=row.get("name").text(), note=note,
    )  # fmt: skip


def _device(machine: Tree) -> Device | None:
    cpu = machine.maybe("cpu")
    brand = cpu.maybe("brand_raw") if cpu else None
    kind, node = machine.maybe("machine"), machine.maybe("node")
    name = (brand.text() if brand else "") or (kind.text() if kind else "")
    if not name:
        return None
    return Device(name=name, architecture=kind.text() if kind else "", host=node.text() if node else "")


def _revision(tree: Tree) -> tuple[Revision | None, str]:
    """Return commit and branch; `unversioned` and `(unknown)` stand for none."""
    info = tree.maybe("commit_info")
    sha, branch = (info.maybe(key) for key in ("id", "branch")) if info else (None, None)
    name = branch.text() if branch else ""
    branch_name = "" if name.startswith("(") else name
    if sha is None or sha.text() in ("", "unversioned"):
        return None, branch_name
    project, committed = (info.maybe(key) for key in ("project", "time")) if info else (None, None)
    return Revision(
        sha=sha.text(), repository=project.text() if project else "",
        committed_ns=epoch_ns(committed) if committed else None,
    ), branch_name  # fmt: skip


IMPORTER = foreign(
    "pytest_benchmark", "pytest-benchmark --benchmark-json", _VERSION, _read, marks=('"machine_info"', '"benchmarks"')
)
