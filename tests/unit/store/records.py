"""Runs that tests give to a store."""

import numpy as np

from nearpeak.core.history.stored_run import TIME, Device, Metric, Revision, RunRecord, SampleSet, Source, Testbed

TESTBED = Testbed(name="torch_cpu", policy={"cache": "hot", "thread_count": 1})
ENERGY = Metric(name="energy", unit="J", kind="energy")
BYTES = Metric(name="memory", unit="B", kind="memory")


def samples(case="gemm", values=(1e-3, 2e-3, 3e-3), metric=TIME, **fields):
    return SampleSet(case=case, label=f"case {case}", metric=metric, testbed=TESTBED, values=values, **fields)


def run(number=0, sets=None, **fields):
    """Run `number` of repository `r`, at its commit of that number unless a field says otherwise."""
    fields.setdefault("revision", Revision(sha=f"{number:040x}", repository="r", position=number))
    fields.setdefault("source", Source(digest=f"file {number}"))
    fields.setdefault("stack", (("torch", "2.9"),))
    sets = (samples(),) if sets is None else sets
    return RunRecord(device=Device(name="H200", host="a"), samples=tuple(sets), started_ns=number, **fields)


def random_run(number, seed=0, cases=4, count=20):
    draw = np.random.default_rng([seed, number])
    return run(number, [samples(f"c{place}", draw.lognormal(-7, 0.1, count)) for place in range(cases)])


def contents(store):
    """Everything that two stores with the same runs have in common, whatever the order in which they came."""
    found = {}
    for series in store.series():
        history = store.history(series.id)
        runs = {one.id: one for one in store.runs(set(history.run_ids.tolist()))}
        for place in range(len(history)):
            run_id, launch = int(history.run_ids[place]), int(history.launches[place])
            data = store.samples(run_id, series.id, launch).tobytes() if history.sample_counts[place] else b""
            found[series.fingerprint, runs[run_id].uid, launch] = (
                int(history.order_keys[place]), history.shas[place], runs[run_id].stack, history.outcomes[place], data,
                repr(history.median[place]),
            )  # fmt: skip
    return found
