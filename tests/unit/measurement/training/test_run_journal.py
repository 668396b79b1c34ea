"""Journal of a run matrix: kills, damage, leases, failures, and cells that are done once."""

import json
import os
import random
from dataclasses import replace

import pytest
from tests.unit.measurement.training import matrix_of_sleeps as sleeps

from nearpeak.errors import MeasureError, SpecError
from nearpeak.measurement.training.cell_process import CODEC
from nearpeak.measurement.training.matrix_run import run_matrix
from nearpeak.measurement.training.run_journal import RunJournal, lease_of

KILLS = 8


def finish(folder, execute=sleeps.execute):
    with RunJournal(folder) as journal:
        return list(run_matrix(sleeps.PLAN.cells(), journal, execute, version="1"))


def test_kills_leave_no_hole_no_duplicate_and_no_half_result(tmp_path):
    draw, killed = random.Random(4), tmp_path / "killed"
    whole = sleeps.run_apart(tmp_path / "whole", tmp_path / "whole.db")
    for _ in range(KILLS):
        sleeps.killed_run(lambda: sleeps.run_apart(killed, tmp_path / "killed.db"), draw.uniform(0.0, 0.15))
    answer = sleeps.run_apart(killed, tmp_path / "killed.db")
    assert (answer.rows, answer.planned_count) == (whole.rows, 0)
    assert sleeps.contents(tmp_path / "killed.db") == sleeps.contents(tmp_path / "whole.db")
    lines = [json.loads(line) for line in (killed / "journal.jsonl").read_text().splitlines()]
    done = [line["key"] for line in lines if line["state"] == "done"]
    assert len(done) == len(set(done)) == len(list((killed / "results").iterdir())) == 12
    assert not (killed / "lease.json").exists()


def test_what_a_kill_leaves_at_each_step_is_put_right(tmp_path):
    whole = finish(tmp_path)
    journal, results = tmp_path / "journal.jsonl", tmp_path / "results"
    lines = journal.read_bytes().splitlines(keepends=True)
    last = json.loads(lines[-1])["key"]
    whole_result = (results / f"{last}.json").read_bytes()
    for damage in ("torn line", "no line", "half a result", "another result", "part", "no result"):
        journal.write_bytes(b"".join(lines[:-1]))
        if damage == "torn line":
            journal.write_bytes(b"".join(lines)[:-9])
        elif damage in ("half a result", "another result", "no result"):
            journal.write_bytes(b"".join(lines))
        (results / f"{last}.json").write_bytes(whole_result)
        if damage in ("half a result", "another result"):
            (results / f"{last}.json").write_bytes(whole_result[:40] if damage == "half a result" else b"{}")
        elif damage == "part":
            (results / f"{last}.json").rename(results / f"{last}.part")
        elif damage == "no result":
            (results / f"{last}.json").unlink()
        ran = []
        steps = finish(tmp_path, lambda cell, key: ran.append(key) or sleeps.execute(cell, key))  # noqa: B023
        assert (steps, ran) == (whole, [last]), damage
        assert (results / f"{last}.json").read_bytes() == whole_result
        assert len(list(results.iterdir())) == len(whole)


def test_an_edited_journal_is_refused(tmp_path):
    (tmp_path / "journal.jsonl").write_text('{"key": 1, "state": "done"}\n')
    with pytest.raises(SpecError, match="line 1"):
        RunJournal(tmp_path)


def test_a_folder_has_one_process_at_a_time(tmp_path):
    with RunJournal(tmp_path), pytest.raises(MeasureError, match="another process"):
        RunJournal(tmp_path)
    with RunJournal(tmp_path):
        pass


def test_a_lease_belongs_to_a_process_its_start_and_its_boot(tmp_path):
    parent = lease_of(os.getppid())
    (tmp_path / "lease.json").write_text(json.dumps(parent))
    with pytest.raises(MeasureError, match=str(os.getppid())):
        RunJournal(tmp_path)
    for stale in ({**parent, "start_ticks": 1}, {**parent, "boot": "another"}, {"pid": 1 << 22}, "torn"):
        (tmp_path / "lease.json").write_text(stale if stale == "torn" else json.dumps(stale))
        with RunJournal(tmp_path):
            assert json.loads((tmp_path / "lease.json").read_text()) == lease_of(os.getpid())


def test_a_cell_that_fails_three_times_is_quarantined(tmp_path):
    bad, tried = next(sleeps.PLAN.cells()), []

    def execute(cell, key):
        if cell == bad:
            tried.append(key)
            raise MeasureError("no luck")
        return sleeps.execute(cell, key)

    for _ in range(2):
        steps = finish(tmp_path, execute)
        assert [(state, reason) for cell, state, reason, _ in steps if cell == bad] == [("quarantined", "no luck")]
        assert len([state for _, state, _, _ in steps if state == "done"]) == len(steps) - 1
    assert len(tried) == 3


def test_another_power_mode_is_refused_and_no_failure(tmp_path):
    cells = [replace(cell, mode="a mode that no machine is in") for cell in sleeps.PLAN.cells()]
    for _ in range(4):
        with RunJournal(tmp_path) as journal:
            steps = list(run_matrix(cells, journal, sleeps.execute, version="1"))
            assert {(state, journal.state(cell.key("1"))) for cell, state, _, _ in steps} == {("refused", "planned")}
            assert "--allow-mode-changes" in steps[0][2]


def test_a_budget_leaves_cells_planned(tmp_path):
    with RunJournal(tmp_path) as journal:
        steps = list(run_matrix(sleeps.PLAN.cells(), journal, sleeps.execute, version="1", until_s=0.0))
    assert {state for _, state, _, _ in steps} == {"planned"}


def test_logs_are_read_as_they_were_written():
    cell = next(sleeps.PLAN.cells())
    log = sleeps.log_of(cell, cell.key("1"))
    assert CODEC.value(json.loads(json.dumps(CODEC.plain(log))), type(log), "log") == log


def test_a_line_nested_too_deeply_is_refused_by_number(tmp_path):
    (tmp_path / "journal.jsonl").write_text("[" * 100_000 + "\n")
    with pytest.raises(SpecError, match="line 1 is no line of a journal"):
        RunJournal(tmp_path)


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    with RunJournal(tmp_path) as journal:
        journal.begin("a")
        whole, write = (tmp_path / "journal.jsonl").read_bytes(), os.write

        def written(file, data):
            if len(data) < 20:
                raise OSError(28, "No space left on device")
            return write(file, data[:-10])

        monkeypatch.setattr(os, "write", written)
        with pytest.raises(SpecError, match="No space left"):
            journal.begin("b")
        assert (tmp_path / "journal.jsonl").read_bytes() == whole
