"""Case arguments of commands: command-line words, a suite, a table of cases, or a saved workload."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearpeak.api.case_words import case_of, value_of
from nearpeak.base.input_files import check_file, text_of_file
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.answers.suite import Suite
    from nearpeak.core.work.case import Case

TABLES = (".csv", ".jsonl", ".parquet")


def cases_of(words: list[str], command: str) -> "list[Case]":
    """Return the cases of OP AXIS=EXTENT…, of a suite, or of a file: a table, JSON lines, a saved workload, results.

    Of a suite, file or ready-made, those that are run; digests and counts are checked as it is read.

    Raises:
        SpecError: the words are neither, or the file holds no cases.
    """
    if not words:
        usage = {"compare": "compare torch_cpu numpy"}.get(command, command)
        raise SpecError(f"{command}: no case; e.g. nearpeak {usage} gemm m=256 n=256 k=256 dtype=fp32, or a file")
    listed = listed_cases(words, command)
    return [case_of(words, command)] if listed is None else listed


def listed_cases(words: list[str], command: str) -> "list[Case] | None":
    """Return the cases of a suite or a file, as `cases_of` does; none where the words are those of one case.

    Raises:
        SpecError: a file with further words, or a file without cases.
    """
    suite = suite_of_words(words)
    if suite is not None:
        return [entry.case for entry in suite.chosen]
    path = Path(words[0])
    if path.suffix != ".json" and path.suffix.lower() not in TABLES:
        return None
    if len(words) > 1:
        raise SpecError(
            f"{command}: {words[1]!r} stands after the file {path}; give words of a case or a file, not both"
        )
    check_file(path, is_read_once=True)
    if path.suffix == ".json":
        from nearpeak.api.questions import capture

        cases = [call.case for call in capture(path).calls if call.case is not None]
    else:
        cases = _table(path)
    if not cases:
        raise SpecError(f"{path}: holds no cases")
    return list(dict.fromkeys(cases))


def table_of(words: list[str] | None) -> Path | None:
    """Return the table that a single word names by its suffix, in capitals or not; none where it names something else.

    >>> table_of(["cases.CSV"]), table_of(["gemm", "m=1"])
    (PosixPath('cases.CSV'), None)
    """
    return Path(words[0]) if words and len(words) == 1 and Path(words[0]).suffix.lower() in TABLES else None


def suite_of_words(words: list[str]) -> "Suite | None":
    """Return the suite that a single word names, a file or a ready-made one; none where it names something else."""
    from nearpeak.suites.suite_names import names_suite, read_suite

    return read_suite(words[0]) if len(words) == 1 and names_suite(words[0]) else None


def _table(path: Path) -> "list[Case]":
    from nearpeak.frontends.files.case_tables import read_columns

    if path.suffix.lower() == ".jsonl":
        from nearpeak.frontends.files.case_tables import parse_jsonl

        records = parse_jsonl(text_of_file(path), str(path))  # results and suites hold cases as `case`
        if held := [record["case"] for record in records if isinstance(record.get("case"), dict)]:
            return [_case(row, f"{path}: a line") for row in held]
    columns = read_columns(path)
    if "op" not in columns:
        raise SpecError(f"{path}: has no column op; a table of cases has op, dtype and the operator's axes")
    plain: dict[str, Any] = {name: (c.tolist() if hasattr(c, "tolist") else list(c)) for name, c in columns.items()}
    rows = zip(*plain.values(), strict=True)
    return [_case(dict(zip(plain, row, strict=True)), f"{path}: row {number}") for number, row in enumerate(rows, 1)]


def _case(row: dict[str, Any], where: str) -> "Case":
    """Return the case of a row; columns that its operator does not have are provenance and left out."""
    from nearpeak.ops import OPS
    from nearpeak.ops.shared.tables.case_table import check_named, unused
    from nearpeak.ops.shared.tables.cells import is_blank

    check_named(row.get("op"), f"{where}: op ")
    hint, filled = "", {name: value for name, value in row.items() if not is_blank(value)}
    try:
        operator = OPS[str(row["op"])]
        phase = str(row.get("phase") or "forward")
        operator.rule(phase)
        signature = operator.signatures[phase]
        hint = unused(signature, filled)
        lying = {name: value for name, value in filled.items() if name.endswith((".layout", ".offset"))}
        cells = {name: value for name, value in filled.items() if name in signature.names()} | lying
        values = {name: _given(value, name in signature.axes or name in lying) for name, value in cells.items()}
        return operator.case(phase, **values)
    except (SpecError, KeyError) as error:
        raise SpecError(f"{where}: {error}{hint}") from None


def _given(value: Any, may_be_whole: bool) -> Any:
    """Return a cell as its operator takes it: programs that know floats alone write extents as 4096.0."""
    from nearpeak.ops.shared.tables.cells import whole

    # A column of CSV in which some rows are empty, as their operator has no such axis, comes as text.
    plain = value_of(value) if isinstance(value, str) else value
    number = whole(value) if may_be_whole else None
    return plain if number is None else number
