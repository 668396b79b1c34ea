"""Imports point down, and start-up loads nothing heavy."""

import subprocess
import sys
import tomllib

import pytest
from house_rules import PACKAGE, ROOT
from import_graph import circles, import_graph

pytest.importorskip("importlinter")


def lint_imports(folder):
    """The import contracts over the package that lies in `folder`."""
    command = [
        sys.executable,
        "-c",
        "import sys; from importlinter.cli import lint_imports_command as c; sys.exit(c())",
    ]
    options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    return subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def test_import_contracts_hold():
    done = lint_imports(PACKAGE.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_modules_import_each_other_in_a_circle_lazily_or_for_types_either():
    assert circles(import_graph(PACKAGE)) == []


def test_every_module_of_the_package_stands_in_the_layers_contract():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = (contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers")
    named = {name.strip() for layer in layers for name in layer.split("|")}
    modules = {entry.stem for entry in PACKAGE.iterdir() if entry.is_dir() or entry.suffix == ".py"}
    assert modules - {"__init__", "__main__", "__pycache__"} == named


def test_importing_the_package_or_its_command_line_loads_no_framework():
    heavy = "{'torch', 'onnx', 'transformers', 'duckdb', 'onnxruntime'}"
    code = f"import sys, nearpeak, nearpeak.cli; nearpeak.cli.application(); print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
