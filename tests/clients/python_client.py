#!/usr/bin/env python3
"""Drives an MCP server over stdio with the PyPI `mcp` client.

usage: python_client.py auto|legacy [--root DIR] [--call NAME JSON]... -- COMMAND [ARG]...

`auto` probes the stateless revision first, `legacy` forces `initialize`.
With `--root` it has that root.
Prints one JSON line per step; any failure goes to stderr and exits 1.
"""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters
from mcp_types import ListRootsResult, Root

TIMEOUT_SECONDS = 60


def parse(argv):
    """Returns (mode, root or None, [(tool, arguments)], server command)."""
    if "--" not in argv:
        raise ValueError("missing -- and the server command")
    split = argv.index("--")
    options, command = argv[:split], argv[split + 1 :]
    if not options or options[0] not in ("auto", "legacy"):
        raise ValueError("the first argument must be auto or legacy")
    if not command:
        raise ValueError("empty server command")
    root, calls, rest = None, [], options[1:]
    if rest[:1] == ["--root"]:
        root, rest = rest[1], rest[2:]
    while rest:
        if rest[0] != "--call" or len(rest) < 3:
            raise ValueError(f"expected --call NAME JSON, got {rest}")
        calls.append((rest[1], json.loads(rest[2])))
        rest = rest[3:]
    return options[0], root, calls, command


def emit(value):
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), flush=True)


async def every(list_page, field):
    """All items of a paginated list."""
    items, cursor, seen = [], None, set()
    while True:
        page = await list_page(cursor=cursor)
        items += getattr(page, field)
        cursor = page.next_cursor
        if cursor is None:
            return items
        if cursor in seen:
            raise RuntimeError(f"the list of {field} repeats the cursor {cursor!r}")
        seen.add(cursor)


async def drive(mode, root, calls, command):
    async def roots(_context):
        return ListRootsResult(roots=[Root(uri=f"file://{root}")])

    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    client = Client(
        server,
        mode=mode,
        read_timeout_seconds=TIMEOUT_SECONDS,
        list_roots_callback=roots if root else None,
    )
    async with client:
        tools = await every(client.list_tools, "tools")
        emit({"tools": sorted(tool.name for tool in tools), "protocol": client.protocol_version})
        for name, arguments in calls:
            result = await client.call_tool(name, arguments)
            text = next((block.text for block in result.content if block.type == "text"), None)
            emit(
                {
                    "call": name,
                    "isError": result.is_error,
                    "structured": result.structured_content,
                    "text": text,
                }
            )
        if client.server_capabilities.resources is not None:
            resources = await every(client.list_resources, "resources")
            emit({"resources": sorted(str(resource.uri) for resource in resources)})
        if client.server_capabilities.prompts is not None:
            prompts = await every(client.list_prompts, "prompts")
            emit({"prompts": sorted(prompt.name for prompt in prompts)})


def leaves(error):
    """The real failures inside the groups that the client's task groups raise."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def main():
    try:
        asyncio.run(drive(*parse(sys.argv[1:])))
    except Exception as error:
        for leaf in leaves(error):
            print(f"{type(leaf).__name__}: {leaf}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
