"""Commands on a store: what they print keeps to 80 columns, what they write is whole, what is wrong is one line."""

import json
import re
import shutil

import pytest
import typer
from tests.unit.store.importers import documents

from nearpeak.cli import application
from nearpeak.cli.shared import options as _shared
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.history.demo_store import filled
from nearpeak.store import open_store

POLICY = '[[rule]]\nname = "rolling"\nbaseline = "rolling"\nwindow = 10\n'


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    place = tmp_path_factory.mktemp("commands") / "made_up.db"
    with open_store(place, create=True) as store:
        filled(store)
    return place


@pytest.fixture(scope="module")
def searched(made_up, tmp_path_factory):
    """That store with its regressions saved."""
    place = shutil.copy(made_up, tmp_path_factory.mktemp("commands") / "searched.db")
    application()(["regressions", "--save", "--store", str(place)], standalone_mode=False)
    return place


@pytest.fixture
def place(made_up, tmp_path):
    return str(shutil.copy(made_up, tmp_path / "copy.db"))


@pytest.fixture
def alerted(searched, tmp_path):
    return str(shutil.copy(searched, tmp_path / "alerted.db"))


def run(capsys, *words):
    """What a command prints, and its exit code."""
    code = application()(list(words), standalone_mode=False) or 0
    return capsys.readouterr().out, code


def without_numbers(text):
    """Lines with the numbers of series left out, which are the store's own business."""
    return [re.sub(r"^ +\d+  ", lambda found: f"{'N':>{len(found[0]) - 2}}  ", line) for line in text.splitlines()]


def on_terminal(monkeypatch):
    monkeypatch.setattr(_shared, "on_terminal", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("words", [
    ("history",), ("history", "softmax", "h100"), ("history", "layer_norm", "h100"), ("regressions",),
    ("regressions", "--better"), ("regressions", "--suspects"), ("regressions", "--save"), ("rank",),
    ("rank", "--by", "team", "--top", "3"), ("alerts", "list"), ("alerts", "list", "--all"),
], ids=" ".join)  # fmt: skip
def test_text_for_people_keeps_to_80_columns_and_holds_no_control_characters(words, place, capsys, monkeypatch):
    on_terminal(monkeypatch)
    text, code = run(capsys, *words, "--store", place)
    assert code == 0
    assert text.endswith("\n")
    assert max(map(len, text.splitlines())) <= 80
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize("words", [("history", "gemm"), ("regressions",), ("rank",), ("alerts", "list")], ids=" ".join)
def test_json_is_one_object_per_line(words, alerted, capsys):
    text, _ = run(capsys, *words, "--store", alerted, "--json")
    assert text.splitlines()
    assert all(isinstance(json.loads(line), dict) for line in text.splitlines())


def test_a_list_of_series_reads_as_written_here(place, capsys, monkeypatch):
    on_terminal(monkeypatch)
    text, _ = run(capsys, "history", "softmax", "mi300x", "--store", place)
    assert without_numbers(text) == [
        "AMD Instinct MI300X, torch_cuda, main",
        "series  case                           course                    newest   change",
        "─" * 80,
        "     N  softmax rows=8192 …            ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁███  42.99 µs  +12.1 %",
        "",
        "AMD Instinct MI300X, triton, main",
        "series  case                           course                    newest   change",
        "─" * 80,
        "     N  softmax rows=8192 …            ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁███  34.18 µs  +11.7 %",
    ]


def test_the_newest_group_of_regressions_reads_as_written_here(place, capsys, monkeypatch):
    on_terminal(monkeypatch)
    text, _ = run(capsys, "regressions", "--store", place)
    assert without_numbers(text)[:7] == [
        "▲ a4ea042754 only on AMD Instinct MI300X: One pass over rows in softmax",
        "  2 series worse since 103bf89e8b, 17 commits ago",
        "  device: only on AMD Instinct MI300X",
        "  commit: One pass over rows in softmax",
        "  softmax rows=8192 columns=8192 bf16, AMD Instinct MI300X:",
        "   N  torch_cuda  ▁▁▁▁▁▁▁▁▄█  +12.2 %",
        "   N  triton      ▁▁▁▁▁▁▁▁▅█  +11.9 %",
    ]


def test_alerts_have_a_day_notes_and_can_be_put_off(alerted, capsys, monkeypatch):
    for words in (
        ("assign", "1", "ada", "--due", "2099-12-24", "--priority", "2"), ("note", "1", "the room was warm"),
        ("snooze", "1", "--until", "2099-01-31"),
    ):  # fmt: skip
        run(capsys, "alerts", *words, "--by", "me", "--store", alerted)
    listed = [
        json.loads(line)["id"] for line in run(capsys, "alerts", "list", "--store", alerted, "--json")[0].splitlines()
    ]
    assert (1 in listed, 2 in listed) == (False, True)
    on_terminal(monkeypatch)
    shown = run(capsys, "alerts", "show", "1", "--store", alerted)[0]
    for words in (
        "due: 2099-12-24",
        "put off until: 2099-01-31",
        "me: new: the room was warm",
        "due 2099-12-24, prior",
    ):
        assert words in shown
    assert "due 2099-12-24: 2 series worse" in run(capsys, "alerts", "list", "--all", "--store", alerted)[0]
    for words in (
        ("snooze", "1", "--until", "2001-01-01"),
        ("assign", "1", "ada", "--due", "soon"),
        ("note", "1", " "),
    ):
        with pytest.raises(SpecError, match=r"over already|is not a day|is empty"):
            run(capsys, "alerts", *words, "--by", "me", "--store", alerted)


def said(capsys, *words):
    """What a command says on standard error."""
    assert not application()(list(words), standalone_mode=False)
    return capsys.readouterr().err


def test_a_list_of_alerts_says_how_many_are_put_off(alerted, capsys, monkeypatch):
    run(capsys, "alerts", "snooze", "1", "--until", "2099-01-31", "--by", "me", "--store", alerted)
    words = ("alerts", "list", "--store", alerted)
    assert said(capsys, *words) == "1 put off, until 2099-01-31; --all lists them too\n"
    run(capsys, "alerts", "snooze", "2", "--until", "2098-12-24", "--by", "me", "--store", alerted)
    on_terminal(monkeypatch)
    assert said(capsys, *words) == "2 put off, the first until 2098-12-24; --all lists them too\n"
    assert said(capsys, *words, "--all") == ""


def test_alerts_live_through_their_states_and_forget_nothing(alerted, capsys, monkeypatch):
    for words in (("move", "1", "active", "--note", "seen"), ("assign", "1", "ada"), ("move", "1", "expected")):
        run(capsys, "alerts", *words, "--by", "me", "--store", alerted)
    shown = json.loads(run(capsys, "alerts", "show", "1", "--store", alerted, "--json")[0])
    assert (shown["status"], shown["assignee"]) == ("expected", "ada")
    assert [one["to_status"] for one in shown["events"]] == ["new", "active", "active", "expected"]
    with pytest.raises(NearpeakError, match="fixing does not follow expected"):
        run(capsys, "alerts", "move", "1", "fixing", "--by", "me", "--store", alerted)
    on_terminal(monkeypatch)
    text, _ = run(capsys, "alerts", "show", "1", "--store", alerted)
    assert "new → active: seen" in text
    assert max(map(len, text.splitlines())) <= 80


def test_declared_changes_are_expected_and_suppressed_series_are_not_told(place, capsys):
    first = json.loads(run(capsys, "regressions", "--store", place, "--json")[0].splitlines()[0])
    declared = ("alerts", "expect", first["bad_sha"], "--from", "8%", "--to", "15%", "--select", "operator=softmax")
    run(capsys, *declared, "--by", "me", "--store", place)
    silent = ("alerts", "suppress", "a known driver", "--days", "3", "--select", "device=NVIDIA H100*")
    run(capsys, *silent, "--by", "me", "--store", place)
    groups = [
        json.loads(line) for line in run(capsys, "regressions", "--save", "--store", place, "--json")[0].splitlines()
    ]
    assert [one["status"] for one in groups] == ["expected", "new", ""]
    assert "NVIDIA H100" not in {series["device"][:11] for one in groups for series, _ in one["changes"]}
    shown = json.loads(run(capsys, "alerts", "show", "1", "--store", place, "--json")[0])
    assert [one["axis"] for one in shown["attributions"]] == ["device", "commit"]


def test_a_change_outside_the_declared_range_stays_new(place, capsys):
    first = json.loads(run(capsys, "regressions", "--store", place, "--json")[0].splitlines()[0])
    declared = ("alerts", "expect", first["bad_sha"], "--from", "1%", "--to", "5%")
    run(capsys, *declared, "--by", "me", "--store", place)
    groups = run(capsys, "regressions", "--save", "--store", place, "--json")[0].splitlines()
    assert json.loads(groups[0])["status"] == "new"


def test_a_marked_commit_is_a_tag_of_later_policies_and_the_gate_is_kept(place, tmp_path, capsys):
    policy = tmp_path / "gate.toml"
    policy.write_text('[[rule]]\nname = "since v1"\nbaseline = "tag"\ntag = "v1"\nselect = { op = "copy" }\n')
    words = ("gate", "--policy", str(policy), "--store", place, "--json")
    with pytest.raises(NearpeakError, match="no measured commit"):
        run(capsys, *words)
    rolling = tmp_path / "rolling.toml"
    rolling.write_text(POLICY)
    marked = json.loads(run(capsys, "gate", "--policy", str(rolling), "--store", place, "--json", "--mark", "v1")[0])
    assert run(capsys, *words)[1] in (0, 11)
    with open_store(place) as store:
        (kept,) = store.policies.gates()
    assert (kept.revision, kept.exit_code) == (marked["revision"], marked["exit_code"])


def test_a_gate_writes_its_reports_whole_and_leaves_with_the_documented_code(place, tmp_path, capsys):
    policy = tmp_path / "gate.toml"
    policy.write_text(POLICY)
    files = {name: tmp_path / f"gate.{name}" for name in ("junit", "markdown", "sarif")}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    text, code = run(
        capsys, "gate", "--policy", str(policy), "--store", place, "--revision", "a4ea042754", *options, "--json"
    )
    result = json.loads(text)
    assert code == result["exit_code"] == 10
    assert all(path.stat().st_size > 100 for path in files.values())


@pytest.mark.parametrize("text", ["[[rule", '[[rule]]\nname = "a"\nbaseline = "previous"\nat_least = "80%"\n'])
def test_a_policy_that_is_wrong_writes_nothing(text, place, tmp_path, capsys):
    policy, report = tmp_path / "gate.toml", tmp_path / "junit.xml"
    policy.write_text(text)
    with pytest.raises(NearpeakError, match=r"gate\.toml"):
        run(capsys, "gate", "--policy", str(policy), "--store", place, "--junit", str(report))
    assert not report.exists()


def test_a_damaged_import_leaves_the_store_as_it_was(place, tmp_path, capsys):
    good, bad = documents.nvbench(tmp_path), tmp_path / "cut.json"
    bad.write_bytes(good.read_bytes()[:-200])
    before = run(capsys, "store", "info", "--store", place)[0]
    with pytest.raises(NearpeakError, match=r"cut\.json"):
        run(capsys, "store", "import", str(good), str(bad), "--store", place)
    assert run(capsys, "store", "info", "--store", place)[0] == before
    run(capsys, "store", "import", str(good), "--store", place)
    text, _ = run(capsys, "history", "copy", "N=4", "--store", place, "--json")
    assert {json.loads(line)["series"]["metric"]["name"] for line in text.splitlines()} == {"time", "host_time"}


def test_measurements_go_into_the_store_that_is_named(tmp_path, capsys):
    place = str(tmp_path / "new.db")
    words = ("measure", "gemm", "m=8", "n=8", "k=8", "dtype=fp32", "--runner", "null", "--store", place)
    for _ in range(2):
        run(capsys, *words)
    rows = [json.loads(line) for line in run(capsys, "history", "--store", place, "--json")[0].splitlines()]
    assert {len(row["points"]) for row in rows if row["series"]["metric"]["name"] == "time"} == {2}


@pytest.mark.parametrize(("words", "said"), [
    (("history", "no_such_case"), "no_such_case"), (("history", "--device", "TPU"), "TPU"),
    (("rank", "--by", "colour"), "colour"), (("regressions", "--build", "make"), "--confirm"),
    (("regressions", "--confirm", "true", "--repository", "."), "not in the repository"),
    (("alerts", "show", "99"), "99"), (("alerts", "move", "99", "fixed", "--by", "me"), "99"),
    (("alerts", "expect", "abc", "--from", "1%", "--to", "2%"), "full commit hash"),
    (("alerts", "suppress", "x", "--days", "1"), "--select: is missing"),
    (("alerts", "suppress", "x", "--days", "1", "--select", "gpu=a"), "names are operator"),
    (("demo-history", "--commits", "3"), "3 commits"), (("gate", "--policy", "missing.toml"), "missing.toml"),
], ids=lambda value: " ".join(value) if isinstance(value, tuple) else None)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(words, said, place, capsys):
    with pytest.raises((NearpeakError, OSError, typer.Exit)) as caught:
        run(capsys, *words, "--store", place)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tokens_are_listed_under_a_head_with_what_became_of_them(place, capsys, monkeypatch):
    for name in ("ci", "n" * 90):
        run(capsys, "token", "add", name, "--days", "30", "--store", place)
    run(capsys, "token", "revoke", "1", "--store", place)
    on_terminal(monkeypatch)
    lines = run(capsys, "token", "list", "--store", place)[0].splitlines()
    assert lines[:2] == ["token  scope   state             name", "    1  submit  taken back        ci"]
    assert max(map(len, lines)) <= 80
