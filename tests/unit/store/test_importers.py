"""Result files into runs: recognised by content, once whatever their name, refused whole where a field is missing."""

import contextlib
import gzip
import json
import subprocess

import pytest
from house_rules import PACKAGE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.store.records import contents, run

from nearpeak.api.measured_analysis import measure
from nearpeak.core.history.stored_run import Device, Revision
from nearpeak.errors import NearpeakError, SpecError, StoreError
from nearpeak.ops import case
from nearpeak.store import open_store
from nearpeak.store.git_commits import git_history, git_revision
from nearpeak.store.importers import IMPORTERS, FileContext, file_bytes, file_digest, importer_of, runs_of_file
from nearpeak.store.maintenance import check
from nearpeak.store.sql_dialect import writing
from nearpeak.store.store_merge import merge
from nearpeak.store.table_schema import TABLES

CASES = (case("gemm", m=8, n=8, k=8, dtype="fp32"), case("fill", elements=4, dtype="fp32"))


@pytest.fixture
def results(tmp_path):
    path = tmp_path / "results.jsonl"
    list(measure(CASES, "null", out=path))
    return path


def given_of(data, **fields):
    return FileContext(name="a.jsonl", digest=file_digest(data), device=Device(name="made up"), **fields)


def edited(data, **fields):
    """The same results with fields of the last line changed."""
    *lines, last = data.decode().splitlines()
    record = json.loads(last)
    for name, value in fields.items():
        record.pop(name) if value is None else record.update({name: value})
    return "\n".join([*lines, json.dumps(record), ""]).encode()


def test_every_file_of_the_folder_is_an_importer_of_its_name():
    stems = sorted(path.stem for path in (PACKAGE / "store" / "importers").glob("*.py") if path.stem[0] != "_")
    assert [one for one in IMPORTERS if one in stems] == stems
    assert all(IMPORTERS[one].title and IMPORTERS[one].version >= 1 for one in IMPORTERS)


def test_results_of_nearpeak_become_a_series_for_each_case_and_clock(results, store):
    data = file_bytes(results)
    (record,) = runs_of_file(data, given_of(data, host="a", stack=(("extra", "1"),)))
    done = store.ingest(record)
    found = {one.label: one for one in store.series(metric="time")}
    assert len(found) == 2
    assert store.samples(done.id, found["gemm m=8 n=8 k=8 fp32"].id).size > 0
    assert found["gemm m=8 n=8 k=8 fp32"].parameters["op"] == "gemm"
    assert dict(record.stack)["extra"] == "1"


def test_what_was_validated_and_sensed_is_kept_with_the_run_in_every_copy_and_damage_is_told(results, store, tmp_path):
    sensed = {
        "begin_ns": 0, "end_ns": 10, "wall_ns": 5, "streams": [], "spans": [], "unavailable": [["gpu", "none"]],
        "rate_hz": 10.0, "tick_count": 1, "late_count": 0, "missed_count": 0, "latest_s": 0.0, "cpu_s": 0.0, "note": "",
    }  # fmt: skip
    case = {"op": "fill", "phase": "forward", "axes": [["elements", 4]], "dtypes": [], "attributes": [], "memory": []}
    checked = {"case": case, "implementation": "x", "seed": 0, "results": [], "command": "", "policy": {}, "engine": ""}
    data = edited(results.read_bytes(), validation=checked, telemetry=sensed)
    (record,) = runs_of_file(data, given_of(data))
    done = store.ingest(record)
    (kept,) = [found for one in set(done.series_ids) if (found := store.records(done.id, one)).get("telemetry")]
    assert kept["validation"] == checked
    assert kept["telemetry"]["unavailable"] == [["gpu", "none"]]
    assert record.source.lost == ()
    with open_store(tmp_path / "copy.db", create=True) as copy:
        merge(store, copy)
        assert any(copy.records(1, one.id) == kept for one in copy.series())
    with writing(store.engine, store.name) as connection:
        connection.execute(TABLES["record_blob"].update().values(crc32=1))
    assert "damaged" in next(iter(check(store.engine, store.name)))
    with pytest.raises(StoreError, match="is damaged on disk; import its file again"):
        [store.records(done.id, one) for one in set(done.series_ids)]


def test_a_renamed_or_packed_file_is_the_same_file(results, store, tmp_path):
    packed = tmp_path / "other.gz"
    packed.write_bytes(gzip.compress(results.read_bytes()))
    answers = []
    for path in (results, packed):
        data = file_bytes(path)
        answers += [store.ingest(record).new for record in runs_of_file(data, given_of(data))]
    assert answers == [True, False]


@pytest.mark.parametrize("field", ["case", "samples_s", "outcome", "runner", "schema", "case_digest"])
def test_a_missing_field_is_named_and_nothing_is_written(results, field):
    data = edited(results.read_bytes(), **{field: None})
    with pytest.raises(SpecError, match=rf"a.jsonl:\d+: .*({field}|digest|schema)"):
        runs_of_file(data, given_of(data))


def test_files_of_no_format_and_damaged_ones_are_refused_in_one_line(tmp_path):
    with pytest.raises(SpecError, match=r"is of no known format; name it by --format: .*nearpeak_results"):
        importer_of(b"hello", "a.txt")
    with pytest.raises(SpecError, match=r"a.json: is cut off at line 2, column 2; write it again"):
        importer_of(b'{"machine_info": {},\n "bench', "a.json")
    with pytest.raises(SpecError, match=r"a.json: is not JSON at line 1, column 7"):
        importer_of(b'{"a": oops}', "a.json")
    with pytest.raises(SpecError, match=r"no known format: the nearest is asv, of which it lacks \"env_name\""):
        importer_of(b'{"commit_hash": "a", "results": {}}', "a.json")
    broken = tmp_path / "a.gz"
    broken.write_bytes(gzip.compress(b"x" * 1000)[:20])
    with pytest.raises(SpecError, match="damaged gzip"):
        file_bytes(broken)
    with pytest.raises(SpecError, match="is a folder"):
        file_bytes(tmp_path)
    with pytest.raises(SpecError, match="did you mean nearpeak_results"):
        runs_of_file(b"", given_of(b""), "nearpeak_result")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.booleans())
def test_mutated_results_are_read_or_refused_by_a_typed_error(results, place, byte, cut):
    data = bytearray(results.read_bytes())
    place %= len(data)
    data[place] = byte
    data = bytes(data[:place] if cut else data)
    with contextlib.suppress(NearpeakError):
        runs_of_file(data, given_of(data), "nearpeak_results")


@pytest.fixture
def repository(tmp_path):
    """A repository with three commits on its main line and one on a branch that was merged."""
    folder = tmp_path / "repo"

    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)

    folder.mkdir()
    git("init", "-b", "main")
    git("commit", "--allow-empty", "-m", "one")
    git("checkout", "-b", "side")
    git("commit", "--allow-empty", "-m", "aside")
    git("checkout", "main")
    git("commit", "--allow-empty", "-m", "two")
    git("merge", "--no-ff", "side", "-m", "three")
    return folder


def test_commits_stand_where_the_first_parents_put_them(repository):
    assert [(one.position, one.subject) for one in git_history(repository)] == [(0, "one"), (1, "two"), (2, "three")]
    assert git_revision(repository, "side").position == 1
    assert git_revision(repository).subject == "three"


def test_commits_that_are_not_in_the_repository_are_refused_by_name(repository, tmp_path):
    with pytest.raises(SpecError, match="commit 0123abc: is not in the repository"):
        git_revision(repository, "0123abc")
    with pytest.raises(SpecError, match="is no name of a commit"):
        git_revision(repository, "--all")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--depth=1", f"file://{repository}", str(clone)], check=True, capture_output=True)
    with pytest.raises(SpecError, match="shallow clone"):
        git_revision(clone)
    with pytest.raises(SpecError, match="git rev-parse"):
        git_revision(tmp_path)


def test_known_history_orders_runs_and_refuses_strangers(repository, store):
    third = git_revision(repository)
    for number, revision in enumerate(git_history(repository)):
        store.ingest(run(number, revision=revision))
    before = contents(store)
    with pytest.raises(SpecError, match="commit feed: is not in the history"):
        store.ingest(run(3, revision=Revision(sha="feed", repository=third.repository)))
    assert contents(store) == before
    assert store.history(1).positions.tolist() == [0, 1, 2]
    with open_store(store.name if "://" not in store.name else str(store.engine.url)) as again:
        assert again.info()["revision"] == 3
