#!/usr/bin/env python3
"""Tries every feature of the table in docs/eras.md with the PyPI `mcp` client, against `mcp-fixture`.

usage: python_eras.py auto|legacy -- COMMAND [ARG]...

`auto` takes the stateless revision if it is offered, `legacy` opens a session. Prints a JSON list of the features
that work as the table says; a failure goes to stderr, with its feature, and exits 1.
"""

import asyncio
import json
import os
import sys
import warnings

from mcp import Client, StdioServerParameters
from mcp_types import CreateMessageResult, ElicitResult, ListRootsResult, Root, TextContent

PATIENCE = 120
README = "fixture:///readme"
ROOT = "file:///ada"


def expect(holds, found):
    if not holds:
        raise AssertionError(repr(found))


async def sample(_context, _params):
    content = TextContent(type="text", text="Ada")
    return CreateMessageResult(role="assistant", content=content, model="none")


async def elicit(_context, _params):
    return ElicitResult(action="accept", content={"name": "Ada"})


async def roots(_context):
    return ListRootsResult(roots=[Root(uri=ROOT, name="ada")])


class Trial:
    def __init__(self, mode, command):
        self.is_modern = mode == "auto"
        self.heard = asyncio.Queue()
        program, *arguments = command
        self.client = Client(
            StdioServerParameters(command=program, args=arguments, env=dict(os.environ)),
            mode=mode,
            read_timeout_seconds=PATIENCE,
            sampling_callback=sample,
            elicitation_callback=elicit,
            list_roots_callback=roots,
            logging_callback=self.log,
            log_level="debug",
            message_handler=self.hear,
        )

    async def log(self, params):
        self.heard.put_nowait(("log", params.data))

    async def hear(self, message):
        self.heard.put_nowait((getattr(message, "method", None), message))

    async def until(self, wanted):
        """The first thing heard of this kind."""
        while True:
            kind, value = await asyncio.wait_for(self.heard.get(), PATIENCE)
            if kind == wanted:
                return value

    async def answer(self, tool):
        result = await self.client.call_tool(tool, {})
        return result.structured_content["answer"]

    async def echo(self):
        result = await self.client.call_tool("echo", {"text": "here"})
        expect(result.content[0].text == "here", result)

    async def handshake(self):
        version = "2026-07-28" if self.is_modern else "2025-11-25"
        expect(self.client.protocol_version == version, self.client.protocol_version)
        expect(self.client.server_info.name == "mcp-fixture", self.client.server_info)
        expect(self.client.server_capabilities.tools.list_changed, self.client.server_capabilities)

    async def lists(self):
        client = self.client
        expect((await client.list_tools()).tools, "tools")
        expect((await client.list_prompts()).prompts, "prompts")
        expect((await client.list_resources()).resources, "resources")
        expect((await client.list_resource_templates()).resource_templates, "templates")

    async def pagination(self):
        cursor, names, pages = None, [], 0
        while pages < 100:
            page = await self.client.list_tools(cursor=cursor)
            names += [tool.name for tool in page.tools]
            pages, cursor = pages + 1, page.next_cursor
            if cursor is None:
                break
        expect(pages > 2 and len(set(names)) == len(names) > 20, names)

    async def progress(self):
        steps = []

        async def step(done, _total, _message):
            steps.append(done)

        arguments = {"ms": 300, "steps": 3}
        await self.client.call_tool("sleep", arguments, progress_callback=step)
        expect(steps, steps)

    async def cancellation(self):
        runs = asyncio.Event()

        async def step(_done, _total, _message):
            runs.set()

        arguments = {"ms": 600_000, "steps": 6000}
        call = asyncio.ensure_future(
            self.client.call_tool("sleep", arguments, progress_callback=step)
        )
        await asyncio.wait_for(runs.wait(), PATIENCE)
        call.cancel()
        await asyncio.wait([call])
        await self.echo()

    async def elicitation(self):
        answer = await self.answer("ask_user")
        expect(answer["content"] == {"name": "Ada"}, answer)

    async def sampling(self):
        answer = await self.answer("ask_model")
        expect(answer["content"]["text"] == "Ada", answer)

    async def roots(self):
        answer = await self.answer("list_roots")
        expect(answer["roots"][0]["uri"] == ROOT, answer)

    async def resource_subscriptions(self):
        touch = ("touch", {"uri": README})
        if self.is_modern:
            async with self.client.listen(resource_subscriptions=[README]) as events:
                await self.client.call_tool(*touch)
                event = await asyncio.wait_for(anext(events), PATIENCE)
                expect(str(event.uri) == README, event)
        else:
            await self.client.subscribe_resource(README)
            await self.client.call_tool(*touch)
            await self.until("notifications/resources/updated")

    async def list_changes(self):
        change = ("change_tools", {"action": "add"})
        if self.is_modern:
            async with self.client.listen(tools_list_changed=True) as events:
                expect(events.honored.tools_list_changed, events.honored)
                await self.client.call_tool(*change)
                await asyncio.wait_for(anext(events), PATIENCE)
        else:
            await self.client.call_tool(*change)
            await self.until("notifications/tools/list_changed")

    async def logging(self):
        if not self.is_modern:
            await self.client.set_logging_level("debug")
        await self.client.call_tool("log", {"level": "info", "text": "wanted"})
        data = await self.until("log")
        expect(data == "wanted", data)

    async def ping(self):
        await self.client.send_ping()

    async def tasks(self):
        declared = self.client.server_capabilities.model_dump_json(exclude_none=True)
        expect("tasks" not in declared, declared)

    async def stray_questions(self):
        # The fixture has asked for roots on its own, and goes on without them.
        await self.echo()

    async def run(self):
        features = {
            "handshake": self.handshake,
            "lists": self.lists,
            "pagination": self.pagination,
            "calls": self.echo,
            "progress": self.progress,
            "cancellation": self.cancellation,
            "elicitation": self.elicitation,
            "sampling": self.sampling,
            "roots": self.roots,
            "resource subscriptions": self.resource_subscriptions,
            "list changes": self.list_changes,
            "logging": self.logging,
            "tasks": self.tasks,
        }
        if self.is_modern:
            features["questions outside a call"] = self.stray_questions
        else:
            features["ping"] = self.ping
        async with self.client:
            for feature, check in features.items():
                try:
                    await check()
                except Exception as error:
                    raise RuntimeError(f"{feature}: {error!r}") from error
        print(json.dumps(list(features)))


def leaves(error):
    """The real failures inside the groups that the client's task groups raise."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def main():
    # Each era calls the other one's methods deprecated.
    warnings.simplefilter("ignore")
    split = sys.argv.index("--")
    try:
        asyncio.run(Trial(sys.argv[1], sys.argv[split + 1 :]).run())
    except Exception as error:
        for leaf in leaves(error):
            print(f"{type(leaf).__name__}: {leaf}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
