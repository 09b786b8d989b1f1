"""Records docs/images/killed-server.svg from a real run: a client, `mainstay wrap`, and a server that is killed twice.

Usage: killed_server.py MAINSTAY SERVER OUTPUT

SERVER is the executable of @modelcontextprotocol/server-everything. The picture shows every line at the time at which it
came. `cargo xtask recording` runs this with the programs of a build.
"""

import html
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

MAINSTAY, SERVER, OUTPUT = sys.argv[1:4]
SHOWN_AS = "npx -y @modelcontextprotocol/server-everything"
WIDTH, LINE, LEFT, TOP = 860, 22, 24, 56
COLOURS = {"command": "#e6edf3", "client": "#9fb3c8", "good": "#7ee787", "bad": "#ff7b72", "note": "#8b949e"}


class Recording:
    """Lines with the time at which each came."""

    def __init__(self):
        self.start = time.monotonic()
        self.lines = []

    def say(self, *pieces):
        self.lines.append((time.monotonic() - self.start, pieces))


class Client:
    """A client with one session on standard input and output."""

    def __init__(self, environment):
        command = [MAINSTAY, "wrap", "--name", "demo", "--", SERVER]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
        )
        self.next = 0

    def ask(self, method, params):
        self.next += 1
        self.tell({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params})
        while True:
            message = json.loads(self.process.stdout.readline())
            if message.get("id") == self.next and "method" not in message:
                return message["result"]
            if "id" in message:
                self.tell({"jsonrpc": "2.0", "id": message["id"], "result": {"roots": []}})

    def tell(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()


def server_of(host):
    """The process of the server: below the host, and a Node.js program."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parents[int(entry)] = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
    for pid in parents:
        above = pid
        while above in parents and above != host:
            above = parents[above]
        if above == host and os.path.basename(os.path.realpath(f"/proc/{pid}/exe")).startswith("node"):
            return pid
    raise SystemExit("the server does not run")


def echo(client, recording, word):
    before = time.monotonic()
    result = client.ask("tools/call", {"name": "echo", "arguments": {"message": word}})
    took = 1000 * (time.monotonic() - before)
    text = result["content"][0]["text"]
    recording.say(("client", f'client  echo "{word}"'), ("good", f"{text}"), ("note", f"{took:.0f} ms"))


def run(recording, environment):
    recording.say(("command", f"$ mainstay wrap -- {SHOWN_AS}"))
    client = Client(environment)
    client.ask(
        "initialize",
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "client", "version": "1"}},
    )
    client.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
    recording.say(("client", "client  initialize"), ("good", "session open"))
    echo(client, recording, "one")
    for word in ("two", "three"):
        time.sleep(0.8)
        victim = server_of(client.process.pid)
        os.kill(victim, signal.SIGKILL)
        recording.say(("command", f"$ kill -9 {victim}"), ("bad", "the server is dead"))
        echo(client, recording, word)
    time.sleep(0.8)
    recording.say(("command", "$ mainstay status"))
    status = subprocess.run([MAINSTAY, "status", "--json"], env=environment, capture_output=True, text=True, check=True)
    health = json.loads(status.stdout)[0]["health"]
    restarts = health["restart_count"] if "restart_count" in health else health["restarts"]
    recording.say(("note", f"  1 session, the same one; {restarts} restarts; 0 calls lost"))
    client.process.stdin.close()
    client.process.wait(60)


def columns(pieces):
    """Where each piece of a line begins."""
    starts = [LEFT, LEFT + 400, LEFT + 640]
    return zip(starts if len(pieces) > 1 else [LEFT], pieces)


def svg(recording):
    height = TOP + LINE * len(recording.lines) + 16
    total = recording.lines[-1][0] + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14">',
        "<title>A client calls a tool; its server is killed twice; the calls after that are answered in the same session</title>",
        "<style>",
    ]
    for number, (at, _) in enumerate(recording.lines):
        share = 100 * at / total
        parts.append(
            f"@keyframes l{number} {{ 0%, {share:.2f}% {{ opacity: 0 }} {share + 0.01:.2f}%, 100% {{ opacity: 1 }} }}"
        )
        parts.append(f".l{number} {{ animation: l{number} {total:.2f}s infinite }}")
    parts.append("@media (prefers-reduced-motion: reduce) { g { animation: none !important } }")
    parts.append("</style>")
    parts.append(f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#0d1117"/>')
    for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        parts.append(f'<circle cx="{28 + 20 * number}" cy="24" r="6" fill="{colour}"/>')
    for number, (_, pieces) in enumerate(recording.lines):
        y = TOP + LINE * number + 4
        texts = "".join(
            f'<text x="{x}" y="{y}" fill="{COLOURS[kind]}" xml:space="preserve">{html.escape(text)}</text>'
            for x, (kind, text) in columns(pieces)
        )
        parts.append(f'<g class="l{number}">{texts}</g>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


with tempfile.TemporaryDirectory() as folder:
    recording = Recording()
    run(recording, {**os.environ, "MAINSTAY_RUNTIME_DIR": f"{folder}/run", "MAINSTAY_CACHE_DIR": f"{folder}/cache"})
with open(OUTPUT, "w") as file:
    file.write(svg(recording))
