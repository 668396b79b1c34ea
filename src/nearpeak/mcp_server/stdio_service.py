"""The server over standard input and output: which tools it has, and errors in the one line of the command line."""

from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError

from nearpeak.errors import NearpeakError
from nearpeak.mcp_server import tool_functions as tools

_INSTRUCTIONS = """\
How fast a deep-learning kernel can be at best (bound), with good software (predict), and is here (measure). A case is \
one operator with its axes, e.g. 'gemm m=4096 n=4096 k=4096 dtype=bf16'. A measurement below the bound is wrong, \
never good: look for work that is not done, or a timer that does not wait. Stop when the time reaches the prediction.\
"""
_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
_RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)


class ToolServer(MCPServer[Any]):
    """A server whose tools fail with one line, as the command line does."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; what it refuses, and arguments that it does not take, become one line.

        Raises:
            ToolError: the call cannot be answered.
        """
        known = {tool.name: tool.input_schema["properties"] for tool in await self.list_tools()}
        strange = sorted(set(arguments) - set(known.get(name, arguments)))
        if strange:
            raise ToolError(f"{name}: takes no {strange[0]!r}; it takes {', '.join(known[name])}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            line = _line_of(name, error.__cause__)
            if line is None:
                raise
            raise ToolError(line) from None


def _line_of(tool: str, cause: BaseException | None) -> str | None:
    """Return an expected failure in one line; none for one that is a fault of the program."""
    if isinstance(cause, ValidationError):
        first = cause.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{tool}: {place}: {first['msg'].lower()}"
    if isinstance(cause, NearpeakError):
        return " ".join(str(cause).split())
    if isinstance(cause, OSError):
        return f"{cause.filename or tool}: {cause.strerror or cause}"
    return None


def server_of(root: Path, *, may_run: bool) -> ToolServer:
    """Return the server with its tools.

    Args:
        root: folder of the traces that may be read.
        may_run: whether tools that execute code on this machine, a client's own among it, do so or refuse.
    """
    from nearpeak.api.questions import version

    server = ToolServer("nearpeak", version=version(), instructions=_INSTRUCTIONS, log_level="ERROR")
    reading = (tools.bound, tools.predict, tools.explain, tools.analyze_trace_in(root.resolve()))
    for function in (*reading, tools.show_targets, tools.show_operators):
        server.add_tool(function, annotations=_READS)
    for function in (tools.validate, tools.measure, tools.compare):
        server.add_tool(function if may_run else _refusing(function), annotations=_RUNS)
    return server


def schema_text(server: ToolServer, *, json: bool) -> str:
    """Return the tools of a server with what each takes, for clients that speak another protocol."""
    import asyncio

    from nearpeak.base.canonical_json import canonical_json

    tools_of = asyncio.run(server.list_tools())
    if json:
        rows = [[tool.name, tool.description, tool.input_schema] for tool in tools_of]
        return canonical_json([dict(zip(("name", "description", "schema"), row, strict=True)) for row in rows]) + "\n"
    blocks = []
    for tool in tools_of:
        needed = tool.input_schema.get("required", [])
        taken = [
            f"  {name}{'' if name in needed else ' (optional)'}: {field.get('description', field.get('type', ''))}\n"
            for name, field in tool.input_schema["properties"].items()
        ]
        blocks.append(f"{tool.name}: {tool.description}\n{''.join(taken)}")
    return "\n".join(blocks)


def _refusing(function: Any) -> Any:
    """Return a tool of the same schema that says how to permit it."""
    from functools import wraps

    from nearpeak.errors import SpecError

    @wraps(function)
    def refused(*_: object, **__: object) -> tools.Record:
        raise SpecError(f"{function.__name__}: runs code on this machine; start the server with --allow-run")

    return refused
