"""An MCP server for the tests of the operator's page. Its texts try to be markup.

Usage: server.py FOLDER. The tool `hold` answers when FOLDER/go exists.
"""

import json
import os
import sys
import threading
import time

FOLDER = sys.argv[1]
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script> Echoes a text"
LOCK = threading.Lock()


def tool(name, description, properties, required, reads):
    schema = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": description, "inputSchema": schema, "annotations": {"readOnlyHint": reads}}


TOOLS = [
    tool("echo", HOSTILE, {"text": {"type": "string", "description": "<b>What</b> to echo"}}, ["text"], True),
    tool("hold", "Waits until a file exists", {}, [], False),
    tool("translate", "Translates a text", {"text": {"type": "string"}, "to": {"enum": ["de", "fr", "it"]}}, ["text", "to"], True),
    tool("delete_branch", "Deletes a branch of a repository", {"name": {"type": "string"}, "force": {"type": "boolean"}}, ["name"], False),
]


def send(message):
    with LOCK:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def call(request_id, name, arguments):
    if name == "hold":
        open(os.path.join(FOLDER, "holding"), "w").close()
        while not os.path.exists(os.path.join(FOLDER, "go")):
            time.sleep(0.01)
    text = arguments.get("text", "done")
    send({"jsonrpc": "2.0", "id": request_id, "result": {"content": [{"type": "text", "text": f"<i>{text}</i>"}]}})


for line in sys.stdin:
    message = json.loads(line)
    method, request_id = message.get("method"), message.get("id")
    if request_id is None:
        continue
    params = message.get("params") or {}
    if method == "tools/call":
        arguments = (request_id, params["name"], params.get("arguments") or {})
        threading.Thread(target=call, args=arguments, daemon=True).start()
        continue
    results = {
        "initialize": {
            "protocolVersion": params.get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "<u>shop</u>", "version": "1"},
        },
        "tools/list": {"tools": TOOLS},
        "ping": {},
    }
    if method in results:
        send({"jsonrpc": "2.0", "id": request_id, "result": results[method]})
    else:
        send({"jsonrpc": "2.0", "id": request_id, "error": {"code": -32601, "message": "no such method"}})
