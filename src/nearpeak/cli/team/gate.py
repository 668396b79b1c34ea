"""Command `nearpeak gate`: a verdict on a revision for continuous integration, with reports and an exit code."""

import sys
from pathlib import Path

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.team.store import STORE

POLICY = typer.Option(Path("nearpeak-gate.toml"), "--policy", help="TOML file with the rules.")

EXAMPLE = """
Example of nearpeak-gate.toml (every key: docs/guide/history.md):

name = "kernels"
tolerance = "2%"          # change up to which two times count as the same
inconclusive = "stop"     # stop (exit code 11), pass, or fail

[[rule]]
name = "not slower than the last commits"
baseline = "rolling"      # or previous, tag, bound, prediction
window = 10

[[rule]]
name = "at least 60 % of the speed of light"
baseline = "bound"
at_least = "60%"
select = { op = "gemm" }
"""
"""End of the help: a policy to start with."""


def gate(
    policy: Path = POLICY,
    store: str | None = STORE,
    revision: str = typer.Option("", "--revision", help="Commit to judge; the newest of the branch by default."),
    branch: str = typer.Option("main", "--branch", help="Branch of that commit."),
    against: str = typer.Option("", "--against", help="Branch whose history is the baseline; the same by default."),
    metric: str = typer.Option("time", "--metric", help="Metric to judge."),
    repository: Path | None = typer.Option(None, "--repository", help="Git repository in which tags are looked up."),
    junit: Path | None = typer.Option(None, "--junit", help="Also write JUnit XML."),
    markdown: Path | None = typer.Option(None, "--markdown", help="Also write Markdown for a comment."),
    sarif: Path | None = typer.Option(None, "--sarif", help="Also write SARIF 2.1.0."),
    save: bool = typer.Option(False, "--save", help="Keep the result in the store."),
    mark: str = typer.Option("", "--mark", help="Name the judged commit, for 'tag' of later policies; implies --save."),
    json: bool = shared.JSON,
) -> None:
    """Judge a revision by the rules of a policy, from the store alone.

    Exit code 0 when all rules pass, 10 when one fails, as each does of a case that crashed, timed out or ran out of
    memory, 11 when one cannot tell and the policy does not let that pass, 12 when a result was wrong, 3 when the device
    was lost; when several apply: 3, then 12, then 10, then 11.
    """
    from nearpeak.gate.evaluation import gated, record_gate_result
    from nearpeak.gate.policy_file import read_policy
    from nearpeak.reports.gate import GATE_FORMATS
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    files = {"junit": junit, "markdown": markdown, "sarif": sarif}
    for path in files.values():
        shared.check_writable(path)
    rules = read_policy(policy)
    with open_store(place_of(store)) as opened:
        result = gated(
            opened, rules, revision=revision, branch=branch, against=against, metric=metric, repository=repository
        )
        if save or mark:
            record_gate_result(opened, result, mark)
    for name, path in files.items():
        if path is not None:
            shared.write_whole(path, GATE_FORMATS[name](result))
    sys.stdout.write(GATE_FORMATS["json" if json else "terminal"](result))
    raise typer.Exit(result.exit_code)
