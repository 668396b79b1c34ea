"""Text or JSON and completed words, for every command alike."""

import json
import sys
from pathlib import Path

import pytest
import typer

import nearpeak.cli
from nearpeak.cli import application, main
from nearpeak.cli.shared.output_format import with_text_option

GEMM = ("gemm", "m=64", "n=64", "k=64", "dtype=bf16")


@pytest.fixture
def run(capsys, monkeypatch):
    def call(*words):
        monkeypatch.setattr("sys.argv", ["nearpeak", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return call


def commands(group, path=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_every_command_has_text_and_json():
    options = {
        path: {option for parameter in command.params for option in parameter.opts}
        for path, command in commands(typer.main.get_command(application()))
    }
    assert len(options) > 60
    assert [path for path, names in options.items() if not {"--json", "--text"} <= names] == []


def test_commands_that_say_what_they_did_say_it_as_json_too(run, tmp_path):
    words = ("export", *GEMM, "--to", str(tmp_path / "kernels"))
    code, out, err = run(*words, "--json")
    assert (code, out) == (0, "")
    assert [json.loads(line) for line in err.splitlines()] == [
        {"message": f"wrote 1 of 1 case below {tmp_path / 'kernels'}"}
    ]
    code, out, err = run("export", *GEMM, "--json")
    assert (code, out) == (2, "")
    assert err.startswith("nearpeak: export: --to is missing")
    assert run(*words, "--json", "--text")[0] == 2


def test_messages_stay_out_of_the_data_and_a_last_line_needs_no_end(capsys):
    def command():
        sys.stderr.write("16 of 20 cases are left out\n")
        sys.stdout.write('{"op":"gemm"}\nwritten')

    with_text_option(command)(in_messages=True, in_words=False)
    captured = capsys.readouterr()
    assert captured.out == '{"op":"gemm"}\n{"message":"written"}\n'
    assert captured.err == '{"message":"16 of 20 cases are left out"}\n'


def test_no_command_decides_by_itself_what_it_prints():
    folder = Path(nearpeak.cli.__file__).parent
    asking = [
        path.name for path in folder.glob("*/*.py") if path.name != "options.py" and "on_terminal" in path.read_text()
    ]
    assert asking == []


@pytest.mark.parametrize(
    "words", [("bound", *GEMM, "-t", "h100_sxm"), ("show", "models"), ("show", "targets", "t4"), ("farm", "--help")]
)
def test_text_reads_as_text_in_a_pipe(run, words):
    code, out, _ = run(*words, *(() if "--help" in words else ("--text",)))
    assert code == 0
    assert not out.startswith("{")


def test_a_pipe_gets_text_but_for_rows_of_cases_and_both_formats_at_once_are_refused(run, tmp_path):
    assert not run("show", "models")[1].startswith("{")
    assert json.loads(run("show", "models", "--json")[1].splitlines()[0])["model"]
    case = {"op": "gemm", "dtype": "bf16", "m": 8, "n": 8, "k": 8}
    words = ["gemm", "dtype=bf16", "m=8", "n=8", "k=8"]
    assert not run("bound", *words, "-t", "h100_sxm")[1].startswith("{")
    (tmp_path / "cases.jsonl").write_text(json.dumps(case))
    rows = "--cases", str(tmp_path / "cases.jsonl"), "-t", "h100_sxm"
    assert json.loads(run("bound", *rows)[1])["limiter"]
    assert not run("bound", *rows, "--text")[1].startswith("{")
    code, _, error = run("show", "models", "--json", "--text")
    assert (code, "exclude each other" in error) == (2, True)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("nearpeak analyze llama-3-8", "llama-3-8b"),
        ("nearpeak bound gemm --target h200_s", "h200_sxm"),
        ("nearpeak simulate scaled_g", "scaled_gemm"),
        ("nearpeak provision resnet-10", "resnet-101"),
        ("nearpeak regr", "regressions"),
        ("nearpeak compare torch_cp", "torch_cpu"),
        ("nearpeak measure gemm --runner nump", "numpy"),
        ("nearpeak show ops scaled_g", "scaled_gemm"),
        ("nearpeak show targets h200_s", "h200_sxm"),
    ],
)
def test_a_shell_completes_names(run, monkeypatch, line, word):
    monkeypatch.setenv("_NEARPEAK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    assert run()[1].split() == [word]


def test_files_complete_where_a_model_may_be_one(run, monkeypatch, tmp_path):
    (tmp_path / "step.json").touch()
    monkeypatch.setenv("_NEARPEAK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"nearpeak analyze {tmp_path}/st")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert run()[1].split() == [str(tmp_path / "step.json")]


def test_the_script_for_a_shell_calls_the_program(run):
    code, out, _ = run("--show-completion", "bash")
    assert (code, "_NEARPEAK_COMPLETE=complete_bash" in out) == (0, True)
