"""Every rule of house_rules.py over every file of the package and of the repository."""

import subprocess

import house_rules
import pytest
from house_rules import PACKAGE, ROOT, RULES, modules

TEXT = {".py", ".md", ".toml", ".txt", ".json", ".jsonl", ".csv", ".html", ".css", ".js", ".j2", ".yml", ".yaml", ""}
CACHES = {".git", ".venv", "__pycache__", "build", "dist", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_module_breaks_the_rule(rule):
    printing = ("cli",)
    faults = []
    for file in modules():
        place = file.relative_to(PACKAGE)
        if rule is not house_rules.print_faults or place.parts[0] not in printing:
            faults += [f"{place}: {fault}" for fault in rule(file.read_text(encoding="utf-8"))]
    assert not faults, "\n" + "\n".join(faults)


def tracked():
    """Files that git tracks or would track; all files where there is no git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]
    return [p for p in ROOT.rglob("*") if p.is_file() and not CACHES & set(p.relative_to(ROOT).parts)]


def test_no_file_names_a_machine_a_registry_or_a_note_to_self():
    faults = []
    for file in tracked():
        if file.suffix in TEXT and file.name != "LICENSE":
            text = file.read_text(encoding="utf-8", errors="replace")
            faults += [f"{file.relative_to(ROOT)}: {fault}" for fault in house_rules.word_faults(text)]
    assert not faults, "\n" + "\n".join(faults)


def test_tests_are_sentences_of_at_most_forty_lines():
    faults = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, length in house_rules.function_sizes(file.read_text(encoding="utf-8")):
            if name.startswith("test_") and (length > 40 or name.count("_") < 3):
                faults.append(f"{file.relative_to(ROOT)}: {name}: {length} lines")
    assert not faults, "\n" + "\n".join(faults)


def test_size_table_is_printed(capsys):
    sizes = {file: file.read_text(encoding="utf-8").count("\n") for file in modules()}
    folders = sorted({file.relative_to(PACKAGE).parts[0] for file in modules() if file.parent != PACKAGE})
    with capsys.disabled():
        print(f"\n{'folder':<10} files lines largest")
        for folder in [*folders, "."]:
            own = {
                f: n
                for f, n in sizes.items()
                if (f.relative_to(PACKAGE).parts[0] == folder) or folder == "." == str(f.parent.relative_to(PACKAGE))
            }
            largest = max(own, key=lambda file: own[file])
            print(f"{folder:<10} {len(own):>5} {sum(own.values()):>5} {largest.name} {own[largest]}")
    assert sum(sizes.values()) > 0


def test_every_function_that_is_called_slow_is_there():
    for name in (ROOT / "tests" / "slow.txt").read_text(encoding="utf-8").split():
        file, _, function = name.partition("::")
        assert f"\ndef {function}(" in (ROOT / file).read_text(encoding="utf-8"), f"tests/slow.txt: {name}"
