"""The rules of STYLE.md as functions from source text to faults, so that seeded faults can prove that they see."""

import ast
import gc
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "nearpeak"
FILE_LINES, FUNCTION_LINES = 400, 50
HEAVY = {"torch", "onnx", "onnxruntime", "transformers", "duckdb", "psutil", "pynvml", "amdsmi"}
NUMBER = re.compile(r"\b(?:int|float)\b")
MUTABLE = re.compile(r"\b(?:list|dict|set|bytearray|List|Dict|Set|MutableMapping)\b")


@cache
def suffixes() -> tuple[str, ...]:
    """The unit suffixes that STYLE.md permits."""
    line = re.search(r"Suffix on every number: `([^`]+)`", (ROOT / "STYLE.md").read_text(encoding="utf-8"))
    assert line, "STYLE.md no longer lists the suffixes"
    return tuple(line[1].split())


@cache
def unitless() -> frozenset[str]:
    """The names that GLOSSARY.md exempts from suffixes: axes, positions, identifiers, terms of the field."""
    text = (ROOT / "GLOSSARY.md").read_text(encoding="utf-8")
    section = text.split("## Names without a unit")[1].split("\n## ")[0]
    return frozenset(
        name for row in section.splitlines() if row.startswith("|") for name in re.findall(r"`(\w+)`", row)
    )


@cache
def parsed(source: str) -> ast.Module:
    """The tree of a source; every rule looks at the same ones."""
    return ast.parse(source)


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """All nodes of a source's tree."""
    walked = tuple(ast.walk(parsed(source)))
    gc.freeze()  # they stay as long as the process: the collector need not look at millions of them again and again
    return walked


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def dataclass_faults(source: str) -> Iterator[str]:
    """Values are frozen, slotted, keyword-only; every field is documented, immutable and names its unit."""
    for node in nodes(source):
        if isinstance(node, ast.ClassDef) and (flags := _dataclass_flags(node)) is not None:
            private = node.name.startswith("_")  # never crosses a module, so it may collect while it is filled
            wanted = {"kw_only"} if private else {"frozen", "kw_only"} | ({"slots"} if not _caches(node) else set())
            if missing := wanted - flags:
                yield f"{node.name}: the dataclass is not {', '.join(sorted(missing))}"
            yield from _field_faults(node)


def _dataclass_flags(node: ast.ClassDef) -> set[str] | None:
    for decorator in node.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        if getattr(call, "id", getattr(call, "attr", "")) == "dataclass":
            keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
            return {str(k.arg) for k in keywords if isinstance(k.value, ast.Constant) and k.value.value is True}
    return None


def _caches(node: ast.ClassDef) -> bool:
    """Values that are worked out when somebody asks for them need a place that slots do not give."""
    fields = [ast.unparse(one.value) for one in node.body if isinstance(one, ast.AnnAssign) and one.value]
    return any(one.startswith("later(") for one in fields) or any(
        "cached_property" in ast.unparse(d) for f in node.body for d in getattr(f, "decorator_list", [])
    )


def _field_faults(node: ast.ClassDef) -> Iterator[str]:
    for index, item in enumerate(node.body):
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        name, annotation = f"{node.name}.{item.target.id}", ast.unparse(item.annotation)
        following = node.body[index + 1] if index + 1 < len(node.body) else None
        if not (isinstance(following, ast.Expr) and _is_text(following.value)):
            yield f"{name}: no string below the field says what it is"
        if MUTABLE.search(annotation) and "Callable" not in annotation and not node.name.startswith("_"):
            yield f"{name}: {annotation} can be changed; use tuple, Mapping or frozenset"
        if _is_number(annotation) and not _has_unit(item.target.id):
            yield f"{name}: a number without a unit; end it in one of {' '.join(suffixes())}, or see GLOSSARY.md"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(node.value.strip())


def _is_number(annotation: str) -> bool:
    """Numbers, optional ones, and tuples and mappings that hold them; not keys, not arguments of callables."""
    if "Callable" in annotation:
        return False
    held = re.sub(r"Mapping\[\w+,", "Mapping[", annotation)
    return bool(NUMBER.search(held)) and not re.search(r"\b(?:str|bool)\b", held)


def _has_unit(name: str) -> bool:
    return name in unitless() or name.endswith(suffixes()) or f"_{name}" in suffixes()


def documentation_faults(source: str) -> Iterator[str]:
    """Every module starts with one line; public classes and functions say what they are or return."""
    tree = parsed(source)
    words = ast.get_docstring(tree)
    if not words or not source.startswith('"""'):
        yield "the file does not start with a line that says what it is for"
    elif len(words.splitlines()) > 1:
        yield "the first docstring is longer than one line"
    for name, node in _public(tree):
        if any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list):
            continue
        documentation = ast.get_docstring(node) or ""
        if not documentation:
            yield f"{name}: not documented"
        elif documentation.lower().startswith(("this function", "this method", "this class", "a function", "function")):
            yield f"{name}: the docstring says that it is a function or class instead of what it returns"
        if isinstance(node, ast.FunctionDef):
            parameters = {item.arg for item in ast.walk(node.args) if isinstance(item, ast.arg)}
            section = documentation.partition("Args:\n")[2].partition("\n\n")[0]
            described = re.findall(r"^    \*{0,2}([a-z]\w*):", section, re.MULTILINE)
            yield from (f"{name}: documents {word}, which is no parameter" for word in {*described} - parameters)


def _public(tree: ast.Module) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            yield node.name, node
            for item in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
                    yield f"{node.name}.{item.name}", item


def size_faults(source: str) -> Iterator[str]:
    """Files of at most 400 lines, functions of at most 50."""
    if (lines := source.count("\n")) > FILE_LINES:
        yield f"the file has {lines} lines; at most {FILE_LINES}"
    for name, length in function_sizes(source):
        if length > FUNCTION_LINES:
            yield f"{name}: the function has {length} lines; at most {FUNCTION_LINES}"


def function_sizes(source: str) -> Iterator[tuple[str, int]]:
    """Each function with its lines, docstring left out: a long explanation is no long function."""
    for node in nodes(source):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0]
            words = first if isinstance(first, ast.Expr) and _is_text(first.value) else None
            spoken = (words.end_lineno or 0) - words.lineno + 1 if words else 0
            yield node.name, (node.end_lineno or 0) - node.lineno + 1 - spoken


def print_faults(source: str) -> Iterator[str]:
    """Only the command line prints."""
    for node in nodes(source):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"line {node.lineno}: print() outside the command line"


def import_faults(source: str) -> Iterator[str]:
    """Heavy packages are imported inside functions, so that start-up and the light core need none of them."""
    for node in _executed_on_import(parsed(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
        for name in names:
            if name.split(".")[0] in HEAVY:
                yield f"line {node.lineno}: {name} is imported when the module is; import it inside the function"


def _executed_on_import(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _executed_on_import(child)


def state_faults(source: str) -> Iterator[str]:
    """No module-level collection that starts empty, unless a string below says why the program must remember."""
    body = parsed(source).body
    for node, following in zip(body, [*body[1:], ast.Pass()], strict=True):
        value = getattr(node, "value", None)
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or value is None:
            continue
        explained = isinstance(following, ast.Expr) and _is_text(following.value)
        if ast.unparse(value) in ("{}", "[]", "dict()", "list()", "set()") and not explained:
            yield f"line {node.lineno}: a module-level collection that starts empty is state; pass values instead"


def encoding_faults(source: str) -> Iterator[str]:
    """Text is read and written in a stated encoding: that of the locale differs from machine to machine."""
    for node in nodes(source):
        if not isinstance(node, ast.Call) or any(keyword.arg == "encoding" for keyword in node.keywords):
            continue
        called, at = ast.unparse(node.func), 0 if isinstance(node.func, ast.Attribute) else 1
        mode = next((one for one in node.args[at : at + 1]), ast.Constant("r"))
        is_text_mode = isinstance(mode, ast.Constant) and bool(re.fullmatch(r"[rwax+t]+", str(mode.value)))
        if (
            (called.startswith("subprocess.") and any(keyword.arg == "text" for keyword in node.keywords))
            or (called.rpartition(".")[2] == "open" and is_text_mode)
            or (called.endswith((".read_text", ".write_text")) and len(node.args) < 1 + called.endswith(".write_text"))
        ):
            yield f"line {node.lineno}: {called}() without an encoding"


PYTHON = (["sys.executable"], ["python"])


def child_faults(source: str) -> Iterator[str]:
    """Python started with -m or -c gets -P: else it imports from the working folder, which may be everybody's."""
    for node in nodes(source):
        if isinstance(node, ast.List):
            first = [ast.unparse(word).strip("'") for word in node.elts[:1]]
            words = [ast.unparse(word).strip("'") for word in node.elts] if first in PYTHON else []
            if {"-m", "-c"} & set(words) and "-P" not in words:
                yield f"line {node.lineno}: Python is started without -P"
        called = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
        if called == "get_context" and ast.unparse(node).endswith("('spawn')") and "safe_imports" not in source:
            yield f"line {node.lineno}: Python is started by multiprocessing outside safe_imports()"


# One letter of each in brackets, so that this file does not contain what it looks for.
_PATHS = r"(?<![\w>.*}])/(?:[w]ork|[t]mp|[r]oot|[h]ome/[a-z]+)/"
_HOSTS = r"[p]ypi\.org|download\.[p]ytorch|[i]ndex-url"
_WORDS = r"[s]ubagent|[s]hared/design|\b[T]ODO\b|\b[F]IXME\b|\b[X]XX\b"
FORBIDDEN = re.compile(f"{_PATHS}|{_HOSTS}|{_WORDS}")


def word_faults(text: str) -> Iterator[str]:
    """No path of a machine, no host of a registry, no note to self."""
    for number, line in enumerate(text.splitlines(), 1):
        if match := FORBIDDEN.search(line):
            yield f"line {number}: {match[0]!r} does not belong into the repository"


RULES: tuple[Callable[[str], Iterator[str]], ...] = (
    dataclass_faults, documentation_faults, size_faults, print_faults, import_faults, state_faults, encoding_faults,
    child_faults, word_faults,
)  # fmt: skip
"""Every rule over Python sources."""
