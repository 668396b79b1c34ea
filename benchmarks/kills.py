"""Commands that write to a store, killed at random moments: nothing acknowledged is lost, nothing is there twice."""

import json
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.unit.store.postgres import Server, folder_of_programs
from tests.unit.store.records import contents, random_run
from tests.unit.store.test_upgrade import old_store

from benchmarks._figures import Figure
from benchmarks._killed import Ended, Killer, run
from nearpeak.farm.host_lock import lock_file
from nearpeak.ops import case as case_of_axes
from nearpeak.store import Store, open_store
from nearpeak.store.maintenance import check
from nearpeak.store.schema_versions import version_of
from nearpeak.store.sql_dialect import reading
from nearpeak.store.store_check import unchecked_engine
from nearpeak.store.table_schema import HEAD

FIGURES = ("kills_lost", "kills_twice", "kills_damaged", "kills_count")
KILLS, SEED = 320, 0
TASKS = ("import", "measure", "save", "upgrade", "farm")
_OLD = "0003"
_WITHOUT_RESULT = (
    "SELECT j.uid, j.state, b.state, b.note, b.attempt_count, b.infra_count FROM job j JOIN job_batch b ON"
    " b.id = j.job_batch_id LEFT JOIN job_result r ON r.job_id = j.id WHERE r.job_id IS NULL"
)


@dataclass(slots=True)
class Outcome:
    """What kills did."""

    kills: int = 0
    """Processes that were killed."""
    lost: int = 0
    """Things that a command had acknowledged, or an earlier look had seen, and that are not there."""
    twice: int = 0
    """Things that are there more than once after the command was given again."""
    damaged: int = 0
    """Faults that `store check` names, files that are half written, and commands that did not come to a good end."""
    given_up: int = 0
    """Jobs of the farm that were given up and are reported as failed, with the reason: none is lost."""


def measure() -> Iterator[Figure]:
    """Yield what was lost, there twice, or damaged, over all tasks and both databases."""
    total = Outcome()
    with databases() as places:
        each = -(-KILLS // (len(TASKS) * len(places)))
        for place in places.values():
            for task in TASKS:
                outcome = attack(task, place, each, SEED)
                for name in Outcome.__slots__:
                    setattr(total, name, getattr(total, name) + getattr(outcome, name))
        both = len(places) == 2
    unit = f"of {total.kills} kills, {total.given_up} jobs given up and reported"
    for name, value in (("lost", total.lost), ("twice", total.twice), ("damaged", total.damaged)):
        yield Figure(name=f"kills_{name}", value=value, unit=unit, bar="0", passed=value == 0, seed=SEED)
    enough = total.kills >= 300 and both
    yield Figure(
        name="kills_count", value=total.kills, unit="kills", bar=">= 300 on both databases", passed=enough, seed=SEED
    )


@contextmanager
def databases() -> Iterator[dict[str, Callable[[Path], str]]]:
    """Yield functions that name a new store by database: SQLite, and PostgreSQL where it is installed."""
    places: dict[str, Callable[[Path], str]] = {"sqlite": lambda folder: str(folder / "store.db")}
    if folder_of_programs() is None:
        yield places
        return
    server = Server()
    try:
        yield places | {"postgresql": lambda _: server.place()}
    finally:
        server.close()


def attack(task: str, place: Callable[[Path], str], kill_count: int, seed: int) -> Outcome:
    """Kill a command `kill_count` times, each time in a state from which it goes on or begins anew."""
    killer, outcome = Killer(seed), Outcome()
    while killer.kills < kill_count:
        with tempfile.TemporaryDirectory(prefix="np-kills-") as name:
            folder = Path(name)
            _TASKS[task](killer, place(folder), folder, outcome)
    outcome.kills = killer.kills
    return outcome


def _import(killer: Killer, place: str, folder: Path, outcome: Outcome) -> None:
    """Import two files at a time; what a line named is in the store, and coming again changes nothing."""
    known: set[str] = set()
    for number in range(3):
        files = [_google_file(folder / f"{number}-{part}.json", 2 * number + part) for part in range(2)]
        words = ["store", "import", *files, "--device", "made up", "--json", "--store", place]
        ended = killer.run("import", words)
        known |= {json.loads(line)["run"] for line in ended.lines}
        again = run(words)
        outcome.damaged += again.code != 0
        known |= {json.loads(line)["run"] for line in again.lines}
        with open_store(place) as store:
            uids = [stored.uid for stored in store.runs()]
            outcome.lost += len(known - set(uids)) + (2 * (number + 1) - len(known))
            outcome.twice += len(uids) - len(known)
            outcome.damaged += _faults(store) + sum(len(store.history(one.id)) != len(uids) for one in store.series())


def _google_file(path: Path, number: int) -> str:
    rows = [
        {"name": name, "run_type": "iteration", "real_time": 1.0 + number + 0.1 * repetition, "cpu_time": 1.0,
         "time_unit": "us"} for name in ("gemm", "softmax") for repetition in range(20)
    ]  # fmt: skip
    path.write_text(json.dumps({"context": {"num_cpus": 2, "host_name": "a"}, "benchmarks": rows}), encoding="utf-8")
    return str(path)


def _measure(killer: Killer, place: str, folder: Path, outcome: Outcome) -> None:
    """Measure into a file and a store until all is there: each line that was printed is in the history, once."""
    cases, out = folder / "cases.jsonl", folder / "results.jsonl"
    sizes = tuple(8 * (number + 1) for number in range(4))
    cases.write_text("".join(f"{json.dumps({'op': 'gemm', 'm': m, 'n': 8, 'k': 8, 'dtype': 'fp32'})}\n" for m in sizes))
    words = ["measure", str(cases), "--runner", "null", "--budget", "2 ms", "--no-check", "--out", str(out), "--json",
             "--store", place]  # fmt: skip
    printed: list[str] = []
    for _ in range(8):
        ended = killer.run("measure", words)
        printed += ended.lines
        if not ended.killed:
            break
    last = run(words)
    outcome.damaged += last.code not in (0, 3)  # 3: nothing was left to do
    printed += last.lines
    medians = {json.loads(line)["case_digest"]: json.loads(line)["samples_s"][0] for line in printed}
    with open_store(place) as store:
        stored = {one.case: store.history(one.id) for one in store.series(metric="time")}
        outcome.lost += len(medians.keys() - stored.keys()) + len(sizes) - len(stored)
        outcome.twice += sum(len(history) - 1 for history in stored.values())
        for one in store.series(metric="time"):
            history = store.history(one.id)
            first = store.samples(int(history.run_ids[0]), one.id, int(history.launches[0]))[0]
            outcome.lost += one.case in medians and abs(float(first) / medians[one.case] - 1) > 1e-6
        outcome.damaged += _faults(store)


def _save(killer: Killer, place: str, _: Path, outcome: Outcome) -> None:
    """Save the regressions of a history: one alert, and the one that was printed."""
    with open_store(place, create=True) as store:
        store.ingest_all([_slowed(number) for number in range(30)])
    words = ["regressions", "--save", "--json", "--store", place]
    printed = {json.loads(line)["alert_id"] for line in killer.run("save", words).lines}
    outcome.damaged += run(words).code != 0
    with open_store(place) as store:
        alerts, changes = store.findings.alerts(), store.findings.changes(retracted=True)
        outcome.lost += len(printed - {alert.id for alert in alerts}) + (not alerts)
        outcome.twice += len(alerts) > 1
        outcome.twice += len(changes) - len({(change.series, change.order_key) for change in changes})
        outcome.damaged += _faults(store) + sum(len(store.findings.events(alert.id)) != 1 for alert in alerts)


def _slowed(number: int) -> Any:
    record, scale = random_run(number, cases=1), 2.0 if number >= 15 else 1.0
    sets = [replace(one, values=[value * scale for value in one.values]) for one in record.samples]
    return replace(record, samples=tuple(sets))


def _upgrade(killer: Killer, place: str, folder: Path, outcome: Outcome) -> None:
    """Upgrade a store of an earlier schema: it is of one version or the other, with all of its rows."""
    old_store(place, _OLD)
    wanted = _wanted_contents(folder)
    words = ["store", "upgrade", "--store", place]
    for _ in range(4):
        ended = killer.run("upgrade", words)
        engine, name = unchecked_engine(place)
        with reading(engine, name) as connection:
            version = version_of(connection)
        engine.dispose()
        outcome.lost += not ended.killed and version != HEAD
        outcome.damaged += version not in (_OLD, HEAD) or (not ended.killed and ended.code != 0)
        if version == HEAD:
            break
    outcome.damaged += run(words).code != 0
    for copy in folder.glob("*.backup"):
        with sqlite3.connect(copy) as connection:
            outcome.damaged += connection.execute("SELECT version_num FROM alembic_version").fetchone() != (_OLD,)
    with open_store(place) as store:
        after = contents(store)
        outcome.lost += len(wanted.keys() - after.keys())
        outcome.twice += len(after) - len(wanted)
        outcome.damaged += _faults(store) + (after != wanted)


def _wanted_contents(folder: Path) -> dict[Any, Any]:
    with open_store(folder / "wanted.db", create=True) as store:
        store.ingest_all([random_run(number) for number in range(3)])
        return contents(store)


def _farm(killer: Killer, place: str, folder: Path, outcome: Outcome) -> None:
    """Put jobs into a queue and run them: each has one result, which stays what it was when it was first seen.

    Leases are as short as they may be, so that they expire while their holders live where the machine is busy.
    """
    open_store(place, create=True).close()
    jobs = folder / "jobs.jsonl"
    echoes = [{"kind": "command", "payload": {"words": [shutil.which("echo"), f"{number + 1} ms"], "limit_s": 20}}
              for number in range(2)]  # fmt: skip
    case = case_of_axes("gemm", m=8, n=8, k=8, dtype="fp32").record()
    measured = {"kind": "measure", "payload": {"case": case, "runner": "null", "timing": {"budget_s": 0.002}}}
    jobs.write_text("".join(f"{json.dumps(job)}\n" for job in (*echoes, measured)), encoding="utf-8")
    submit = ["farm", "submit", "jobs", str(jobs), "--batch", "1", "--json", "--store", place]
    printed = _uids(killer.run("submit", submit))
    outcome.damaged += run(submit).code != 0
    name = f"fake-{folder.name}"
    up = ["farm", "up", "--device", name, "--until-idle", "--ttl", "1 s", "--json", "--store", place]
    seen: dict[str, int] = {}
    for _ in range(12):
        ended = killer.run("farm", up)
        now = _results(place)
        outcome.lost += sum(now.get(uid) != crc for uid, crc in seen.items())
        seen |= now
        if not ended.killed:
            break
    last = run(up)
    outcome.damaged += last.code != 0
    lock_file(name).unlink(missing_ok=True)
    now = _results(place)
    with open_store(place) as store, reading(store.engine, store.name) as connection:
        uids = connection.exec_driver_sql("SELECT uid FROM job").scalars().all()
        for uid, state, *more, note, _, _ in connection.exec_driver_sql(_WITHOUT_RESULT).all():
            sys.stderr.write(f"farm: a job has no result: {uid, state, *more, note}\n")
            outcome.given_up += state == "failed" and bool(note)
            outcome.lost += last.code == 0 and (state != "failed" or not note)
        accepted = connection.exec_driver_sql(
            "SELECT count(*) FROM job_attempt WHERE outcome = 'accepted'"
        ).scalar_one()
        outcome.lost += len(set(printed) - set(uids)) + sum(now.get(uid) != crc for uid, crc in seen.items())
        outcome.lost += len(uids) < len(echoes) + 1
        outcome.twice += len(uids) - len(set(uids)) + max(0, int(accepted) - len(uids))
        outcome.twice += store.info()["run"] > 1
        outcome.lost += len(now) == len(uids) and not store.info()["run"]
        outcome.damaged += _faults(store)


def _uids(ended: Ended) -> list[str]:
    return [uid for line in ended.lines for uid in json.loads(line)["uids"]]


def _results(place: str) -> dict[str, int]:
    query = "SELECT j.uid, r.crc32 FROM job j JOIN job_result r ON r.job_id = j.id"
    with open_store(place) as store, reading(store.engine, store.name) as connection:
        return dict(connection.exec_driver_sql(query).tuples().all())


def _faults(store: Store) -> int:
    return len(list(check(store.engine, store.name)))


_TASKS: dict[str, Callable[[Killer, str, Path, Outcome], None]] = {
    "import": _import, "measure": _measure, "save": _save, "upgrade": _upgrade, "farm": _farm,
}  # fmt: skip
