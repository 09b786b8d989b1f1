"""Runs a plan of tests/servers/plans against an MCP server, through any Python client.

usage: CLIENT.py auto|legacy PLAN [--folder DIR] [--kill-during --victim TEXT] -- COMMAND [ARG]...

Without `--kill-during` every step of the plan is taken and compared. With it, calls are made in
rounds while the server is killed with -9, and the same session must go on: calls that may be repeated
all succeed, one that may not either succeeds or fails with a typed error, and is never executed
twice. The victims are the descendants of this process with TEXT in their command line, but not behind a
`--`: whoever wraps a server names it, too. Of several, one above the other, the last one is meant.

Prints one JSON line; any mismatch goes to stderr and exits 1.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

STEP_SECONDS = 120
ROUNDS = 5
# A kill comes at most so long after the calls of its round were sent.
KILL_WITHIN_SECONDS = 0.12
# What clients answer when they are asked.
SAMPLED = "sampled by the client"
ROOT_NAME = "folder"


@dataclass
class Answer:
    """What a client made of a result."""

    text: str
    structured: object
    is_error: bool
    progress: int = 0


@dataclass
class Options:
    mode: str
    plan: dict
    folder: str
    victim: str | None
    command: list


class Mismatch(Exception):
    pass


def parse(argv):
    if "--" not in argv:
        raise ValueError("missing -- and the server command")
    split = argv.index("--")
    words, command = argv[:split], argv[split + 1 :]
    if len(words) < 2 or words[0] not in ("auto", "legacy") or not command:
        raise ValueError("expected auto|legacy PLAN [OPTION]... -- COMMAND")
    folder, victim, kills = os.getcwd(), None, False
    rest = words[2:]
    while rest:
        if rest[0] == "--kill-during":
            kills, rest = True, rest[1:]
        elif rest[0] in ("--folder", "--victim") and len(rest) > 1:
            if rest[0] == "--folder":
                folder = rest[1]
            else:
                victim = rest[1]
            rest = rest[2:]
        else:
            raise ValueError(f"no option {rest[0]}")
    if kills != (victim is not None):
        raise ValueError("--kill-during and --victim go together")
    plan = filled(json.loads(Path(words[1]).read_text()), folder=folder)
    return Options(words[0], plan, folder, victim, command)


def filled(value, **names):
    """The value with {name} replaced in every string."""
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace("{" + name + "}", str(text))
        return value
    if isinstance(value, list):
        return [filled(item, **names) for item in value]
    if isinstance(value, dict):
        return {filled(key, **names): filled(item, **names) for key, item in value.items()}
    return value


def expect(condition, what, found):
    if not condition:
        raise Mismatch(f"{what}; found {found!r}")


def check(step, answer):
    """Compares an answer with what the step says about it."""
    name = step["call"]
    expect(answer.is_error == step.get("isError", False), f"{name}: isError", answer)
    if "text" in step:
        expect(answer.text == step["text"], f"{name}: the text {step['text']!r}", answer)
    if "contains" in step:
        expect(step["contains"] in answer.text, f"{name}: a text with {step['contains']!r}", answer)
    if "structured" in step:
        expect(answer.structured == step["structured"], f"{name}: {step['structured']!r}", answer)
    if "progress" in step:
        # A client may drop the last step, which arrives together with the answer.
        missed = step["progress"] - answer.progress
        expect(missed in (0, 1), f"{name}: {step['progress']} steps", answer)


async def take(session, step):
    """Takes one step of a plan."""
    if "call" in step:
        call = session.call(step["call"], step.get("arguments", {}), "progress" in step)
        check(step, await asyncio.wait_for(call, STEP_SECONDS))
    elif "prompts" in step:
        names = await session.prompts()
        expect(names == step["prompts"], "the prompts", names)
    elif "prompt" in step:
        text = await session.prompt(step["prompt"], step.get("arguments", {}))
        expect(step["contains"] in text, f"the prompt {step['prompt']}", text)
    elif "resources" in step:
        uris = await session.resources()
        expect(set(step["resources"]) <= set(uris), "the resources", uris)
    elif "templates" in step:
        uris = await session.templates()
        expect(uris == step["templates"], "the templates", uris)
    elif "read" in step:
        text = await session.read(step["read"])
        expect(step["contains"] in text, f"the resource {step['read']}", text)
    elif "complete" in step:
        asked = step["complete"]
        values = await session.complete(asked["prompt"], asked["name"], asked["value"])
        expect(values == step["values"], f"completion of {asked}", values)
    else:
        raise ValueError(f"no such step: {step}")


async def exercise(session, options):
    """Every step, in order."""
    plan = options.plan
    expect(session.protocol == plan["protocol"][options.mode], "the protocol", session.protocol)
    for _ in range(2000):
        # Some servers add tools when they have seen the client's capabilities.
        tools = [name for name in await session.tools() if name not in plan.get("maybe", [])]
        if tools == plan["tools"]:
            break
        await asyncio.sleep(0.05)
    expect(tools == plan["tools"], "the tools", tools)
    for step in plan["steps"]:
        await take(session, step)
    return {"protocol": session.protocol, "steps": len(plan["steps"])}


async def survive(session, options):
    """Rounds of calls while the server is killed."""
    kill = options.plan["kill"]
    rng = random.Random(7)
    counts = {"kills": 0, "again": 0, "once": 0, "lost": 0}
    fates = {}
    before = await session.tools()
    for step in kill["again"]:
        await take(session, step)
    for number in range(ROUNDS):
        calls = [asyncio.ensure_future(take(session, step)) for step in kill["again"] for _ in "ab"]
        once = filled(kill.get("once"), n=number)
        lost = asyncio.ensure_future(attempt(session, once)) if once else None
        for call in filter(None, [*calls, lost]):
            # Only the first mismatch is reported.
            call.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.sleep(rng.random() * KILL_WITHIN_SECONDS)
        counts["kills"] += slay(options.victim)
        for call in calls:
            await call
            counts["again"] += 1
        if lost is not None:
            fates[number] = await lost
            counts["once" if fates[number] else "lost"] += 1
        for step in kill["again"]:
            await take(session, step)
    expect(counts["kills"] >= ROUNDS, f"{ROUNDS} kills", counts)
    after = await session.tools()
    expect(sorted(after) == sorted(before), "the same tools as before", after)
    if "witness" in kill:
        testify(kill["witness"], fates)
    return {"protocol": session.protocol, **counts}


async def attempt(session, step):
    """A call that must not be repeated: True if it succeeded, False after a typed error."""
    call = session.call(step["call"], step.get("arguments", {}), False)
    try:
        answer = await asyncio.wait_for(call, STEP_SECONDS)
    except session.refusals as error:
        expect(session.is_typed(error), "a typed error", error)
        return False
    if not answer.is_error:
        check(step, answer)
        return True
    try:
        payload = json.loads(answer.text)
    except ValueError:
        payload = None
    expect(isinstance(payload, dict) and "code" in payload, "a typed error", answer)
    return False


def testify(witness, fates):
    """No call was executed twice, and each that succeeded was executed."""
    path = Path(witness["file"])
    text = path.read_text() if path.exists() else ""
    for number, succeeded in fates.items():
        count = text.count(filled(witness["each"], n=number))
        expect(count <= 1, f"call {number} executed at most once", count)
        expect(count == 1 or not succeeded, f"call {number} executed", count)


def slay(text):
    """Kills the victims with -9; says how many there were."""
    until = time.monotonic() + 120
    while True:
        victims = find_victims(text)
        killed = 0
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
        if killed:
            return killed
        if time.monotonic() > until:
            raise Mismatch(f"nobody below this process has {text!r} in its command line")
        time.sleep(0.005)


def find_victims(text):
    parents, lines = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_text()
            line = Path(f"/proc/{entry}/cmdline").read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            continue
        parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
        lines[int(entry)] = line

    def ancestors(pid):
        while pid in parents:
            pid = parents[pid]
            yield pid

    def is_named(line):
        words = line.split("\0")
        before = words[: words.index("--")] if "--" in words else words
        return any(text in word for word in before)

    me = os.getpid()
    matching = {pid for pid, line in lines.items() if is_named(line) and me in ancestors(pid)}
    inner = {above for pid in matching for above in ancestors(pid)}

    def itself(pid):
        # A child that was forked a moment ago still has the command line of its parent.
        while lines.get(parents[pid]) == lines[pid]:
            pid = parents[pid]
        return pid

    return sorted({itself(pid) for pid in matching - inner})


def leaves(error):
    """The real failures inside the groups that task groups raise."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def main(connect):
    """`connect(options)` gives an asynchronous context manager of a session."""

    async def run():
        options = parse(sys.argv[1:])
        async with connect(options) as session:
            work = survive if options.victim else exercise
            print(json.dumps(await work(session, options)), flush=True)

    try:
        asyncio.run(run())
    except Exception as error:
        for leaf in leaves(error):
            print(f"{type(leaf).__name__}: {leaf}", file=sys.stderr)
        return 1
    return 0
