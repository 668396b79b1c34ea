"""The import graph of a package, lazy and typing-only imports included, and the circles in it."""

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

from house_rules import nodes

Graph = Mapping[str, set[str]]


def import_graph(package: Path) -> dict[str, set[str]]:
    """For each module of `package` the modules of it that it imports anywhere in its text.

    A name that is imported from a package counts as the module of that name where there is one, else as the package.
    """
    files = {_module_name(package, file): file for file in package.rglob("*.py")}
    return {module: _imported(file, files) - {module} for module, file in sorted(files.items())}


def _module_name(package: Path, file: Path) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(file: Path, modules: Iterable[str]) -> set[str]:
    """The modules that a file names in imports, each as the longest of `modules` that the name begins with."""
    names = set()
    for node in nodes(file.read_text(encoding="utf-8")):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    candidates = (name.split(".") for name in names)
    prefixes = (
        next((p for end in range(len(parts), 0, -1) if (p := ".".join(parts[:end])) in modules), "")
        for parts in candidates
    )
    return set(filter(None, prefixes))


def circles(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one module, each sorted, by Tarjan's algorithm.

    Source: Tarjan 1972, SIAM Journal on Computing 1(2), pages 146-160.
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    components: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in graph[module]:
            if other not in number:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            start = stack.index(module)
            components.append(sorted(stack[start:]))
            del stack[start:]

    for module in graph:
        if module not in number:
            visit(module)
    return sorted(component for component in components if len(component) > 1)
