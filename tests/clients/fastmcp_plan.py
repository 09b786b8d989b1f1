#!/usr/bin/env python3
"""Runs a plan with the client of FastMCP; see plan.py."""

import os
import sys
from contextlib import asynccontextmanager

import plan
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from mcp import MCPError
from mcp_types import PromptReference, Root


async def sample(_messages, _params, _context):
    return plan.SAMPLED


async def elicit(_message, _response_type, _params, _context):
    return ElicitResult(action="decline")


class Session:
    refusals = (MCPError,)

    def __init__(self, client):
        self.client = client
        self.protocol = client.protocol_version

    def is_typed(self, error):
        return error.error.code != -32000

    async def tools(self):
        return [tool.name for tool in await self.client.list_tools()]

    async def call(self, name, arguments, with_progress):
        steps = []

        async def step(progress, total, message):
            steps.append(progress)

        told = step if with_progress else None
        result = await self.client.call_tool_mcp(name, arguments, progress_handler=told)
        text = next((block.text for block in result.content if block.type == "text"), "")
        return plan.Answer(text, result.structured_content, bool(result.is_error), len(steps))

    async def prompts(self):
        return [prompt.name for prompt in await self.client.list_prompts()]

    async def prompt(self, name, arguments):
        result = await self.client.get_prompt(name, arguments)
        return "\n".join(getattr(one.content, "text", "") for one in result.messages)

    async def resources(self):
        return [str(resource.uri) for resource in await self.client.list_resources()]

    async def templates(self):
        return [one.uri_template for one in await self.client.list_resource_templates()]

    async def read(self, uri):
        return "\n".join(getattr(one, "text", "") for one in await self.client.read_resource(uri))

    async def complete(self, prompt, name, value):
        reference = PromptReference(type="ref/prompt", name=prompt)
        completion = await self.client.complete(reference, {"name": name, "value": value})
        return completion.values


@asynccontextmanager
async def connect(options):
    program, *arguments = options.command
    transport = StdioTransport(program, arguments, env=dict(os.environ), keep_alive=False)
    client = Client(
        transport,
        mode=options.mode,
        timeout=plan.STEP_SECONDS,
        roots=[Root(uri=f"file://{options.folder}", name=plan.ROOT_NAME)],
        sampling_handler=sample,
        elicitation_handler=elicit,
    )
    async with client:
        yield Session(client)


if __name__ == "__main__":
    sys.exit(plan.main(connect))
