"""The layout of the package: rooms of a readable size, modules named by nouns, no helper that is only a hop."""

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

from house_rules import PACKAGE, modules, nodes, parsed

MOST_FILES, MOST_HOPS, HOP_LINES, LEAST_LINES = 30, 400, 5, 40
REGISTRIES = (
    "ops/*", "targets", "prediction/models", "simulation/lowering", "cli/question", "cli/run", "cli/team", "web/pages",
    "farm/kinds", "farm/executors", "store/importers", "store/migrations/versions", "measurement/runners",
    "measurement/telemetry/sources", "exchange/power_logs", "traces/formats", "traces/findings", "validation/checks",
    "judgement/opportunities", "bounds/simplify/rewrites", "frontends/huggingface/recipes", "reports/*",
    "systems/training/schedules",
)  # fmt: skip
"""Folders of one file per thing, where the name of the thing is the stem of its file."""
FIELD_TERMS = {"embedding", "family", "finding", "learning", "lowering", "ranking", "rounding", "sampling", "timing"}
"""Nouns of the field that end like a gerund, a participle or an adverb."""
BLANK_NAMES, MOST_BLANK_NAMES = {"found", "one", "own", "given", "asked", "kept", "said", "told"}, 25
"""Local names that do not say what they hold; their number only falls."""
QUESTIONS = ("What ", "Which ", "How ", "Whether ", "Who ", "Why ", "Where ", "When ")


def place(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


def is_registry(folder: Path) -> bool:
    return any(folder.relative_to(PACKAGE).match(pattern) for pattern in REGISTRIES)


def test_a_folder_holds_at_most_thirty_files_unless_it_is_a_registry():
    counts = Counter(file.parent for file in modules())
    crowded = {place(folder): count for folder, count in counts.items() if count > MOST_FILES}
    assert {name: count for name, count in crowded.items() if not is_registry(PACKAGE / name)} == {}


def test_no_two_modules_outside_registries_share_a_stem():
    files = defaultdict(list)
    for file in modules():
        if not file.stem.startswith("__") and not is_registry(file.parent):
            files[file.stem].append(place(file))
    assert {stem: names for stem, names in files.items() if len(names) > 1} == {}


def test_module_names_are_nouns_of_the_field():
    faults = []
    for file in modules():
        last = file.stem.split("_")[-1]
        if re.search(r"(?:ing|ed|ly)$", last) and last not in FIELD_TERMS and not is_registry(file.parent):
            faults.append(place(file))
    assert faults == [], "name what the module holds; gerunds and participles that are nouns stand in FIELD_TERMS"


def test_no_module_starts_with_a_question():
    lines = {place(file): file.read_text(encoding="utf-8").split("\n", 1)[0] for file in modules()}
    assert [f"{name}: {line}" for name, line in lines.items() if line.removeprefix('"""').startswith(QUESTIONS)] == []


def test_local_names_say_what_they_hold():
    counts = Counter()
    for file in modules():
        for node in nodes(file.read_text(encoding="utf-8")):
            is_local = isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
            counts[place(file)] += is_local and (node.arg if isinstance(node, ast.arg) else node.id) in BLANK_NAMES
    assert sum(counts.values()) <= MOST_BLANK_NAMES, counts.most_common(20)


def hops(source: str) -> list[str]:
    """Return private functions of a module whose only mention is one call and whose body is a few lines.

    Functions with a decorator are no mere hops: they remember their results, or run as machine code.
    """
    mentions = Counter(node.id for node in nodes(source) if isinstance(node, ast.Name))
    mentions += Counter(node.attr for node in nodes(source) if isinstance(node, ast.Attribute))
    called = {node.func.id for node in nodes(source) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    names = []
    for node in parsed(source).body:
        is_private = isinstance(node, ast.FunctionDef) and node.name.startswith("_") and not node.decorator_list
        if is_private and mentions[node.name] == 1:
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            names += [node.name] if node.name in called and lines <= HOP_LINES else []
    return names


def test_few_private_functions_are_called_once_with_a_body_of_five_lines():
    sources = {place(file): file.read_text(encoding="utf-8") for file in modules()}
    found = [f"{name}: {hop}" for name, source in sources.items() for hop in hops(source)]
    assert len(found) <= MOST_HOPS, "\n".join(found)


def test_a_function_that_is_called_once_is_seen_and_a_callback_is_not():
    assert hops("def _line(e):\n    return str(e)\n\n\ndef note(e):\n    return _line(e)\n") == ["_line"]
    assert hops("def _line(e):\n    return str(e)\n\n\nTABLE = {'a': _line}\n") == []
    assert hops("@cache\ndef _line(e):\n    return str(e)\n\n\ndef note(e):\n    return _line(e)\n") == []


def test_no_module_executes_text_but_the_reference_of_a_kernel_definition():
    calls = [
        f"{place(file)}: {node.func.id}"
        for file in modules()
        for node in nodes(file.read_text(encoding="utf-8"))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("exec", "eval")
    ]
    assert calls == ["frontends/files/definition_capture.py: exec"], "that one runs in the limited child process"


def test_no_module_unpickles_or_unmarshals():
    imports = []
    for file in modules():
        for node in nodes(file.read_text(encoding="utf-8")):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            imports += [f"{place(file)}: {name}" for name in names if name.split(".")[0] in ("pickle", "marshal")]
    assert imports == []


def test_no_underscore_module_is_imported_from_outside_its_folder():
    faults = []
    for file in modules():
        own = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts[:-1])
        for node in nodes(file.read_text(encoding="utf-8")):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("nearpeak"):
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    folder, _, stem = (whole if _is_module(whole) else str(node.module)).rpartition(".")
                    if stem.startswith("_") and folder != own:
                        faults.append(f"{place(file)}: {whole}")
    assert faults == []


def test_no_name_of_a_package_hides_one_of_its_modules():
    """`import nearpeak.prediction.calibration as c` gives the package: no function of that name stands in its place."""
    faults = []
    for file in modules():
        if file.stem == "__init__":
            children = {child.stem for child in file.parent.iterdir() if child.suffix == ".py" or child.is_dir()}
            for node in parsed(file.read_text(encoding="utf-8")).body:
                bound = {getattr(node, "name", "")} | {
                    alias.asname or alias.name
                    for alias in (node.names if isinstance(node, ast.ImportFrom) else [])
                    if not _is_module(f"{node.module}.{alias.name}")
                }
                faults += [f"{place(file)}: {name}" for name in bound & children]
    assert faults == []


def _is_module(dotted: str) -> bool:
    return PACKAGE.parent.joinpath(*dotted.split(".")).with_suffix(".py").is_file()
