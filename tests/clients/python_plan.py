#!/usr/bin/env python3
"""Runs a plan with the PyPI `mcp` client; see plan.py."""

import os
import sys
from contextlib import asynccontextmanager

import plan
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import CreateMessageResult, ElicitResult, ListRootsResult, Root, TextContent


async def sample(_context, _params):
    content = TextContent(type="text", text=plan.SAMPLED)
    return CreateMessageResult(role="assistant", content=content, model="none")


async def elicit(_context, _params):
    return ElicitResult(action="decline")


async def every(list_page, field):
    items, cursor = [], None
    while True:
        page = await list_page(cursor=cursor)
        items += getattr(page, field)
        cursor = page.next_cursor
        if cursor is None:
            return items


class Session:
    refusals = (MCPError,)

    def __init__(self, client):
        self.client = client
        self.protocol = client.protocol_version

    def is_typed(self, error):
        # The client's own word for a connection that is gone.
        return error.error.code != -32000

    async def tools(self):
        return [tool.name for tool in await every(self.client.list_tools, "tools")]

    async def call(self, name, arguments, with_progress):
        steps = []

        async def step(progress, total, message):
            steps.append(progress)

        told = step if with_progress else None
        result = await self.client.call_tool(name, arguments, progress_callback=told)
        text = next((block.text for block in result.content if block.type == "text"), "")
        return plan.Answer(text, result.structured_content, bool(result.is_error), len(steps))

    async def prompts(self):
        return [prompt.name for prompt in await every(self.client.list_prompts, "prompts")]

    async def prompt(self, name, arguments):
        result = await self.client.get_prompt(name, arguments)
        return "\n".join(getattr(one.content, "text", "") for one in result.messages)

    async def resources(self):
        found = await every(self.client.list_resources, "resources")
        return [str(resource.uri) for resource in found]

    async def templates(self):
        found = await every(self.client.list_resource_templates, "resource_templates")
        return [template.uri_template for template in found]

    async def read(self, uri):
        result = await self.client.read_resource(uri)
        return "\n".join(getattr(one, "text", "") for one in result.contents)

    async def complete(self, prompt, name, value):
        from mcp_types import PromptReference

        reference = PromptReference(type="ref/prompt", name=prompt)
        result = await self.client.complete(reference, {"name": name, "value": value})
        return result.completion.values


@asynccontextmanager
async def connect(options):
    program, *arguments = options.command
    server = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))

    async def roots(_context):
        return ListRootsResult(roots=[Root(uri=f"file://{options.folder}", name=plan.ROOT_NAME)])

    client = Client(
        server,
        mode=options.mode,
        read_timeout_seconds=plan.STEP_SECONDS,
        sampling_callback=sample,
        elicitation_callback=elicit,
        list_roots_callback=roots,
    )
    async with client:
        yield Session(client)


if __name__ == "__main__":
    sys.exit(plan.main(connect))
