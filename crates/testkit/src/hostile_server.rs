//! An MCP server in a few lines of Python that is hostile to its host: schemas and results that are expensive to check,
//! errors that imitate the host's own, respelled ids, torn answers, progress after the answer.

/// A server in Python whose tools have hostile schemas and results.
pub const HOSTILE_SERVER: &str = r##"
import json, sys
def say(text):
    sys.stdout.write(text + "\n"); sys.stdout.flush()
def answer(m, result):
    say(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}))
patterns = [{"pattern": "(?=a)a*b%dz|c$" % n} for n in range(50)]
hostile = {"type": "object", "properties": {"list": {"type": "array", "items": {"allOf": patterns}}}}
step = lambda n: {"properties": {"a": {"$ref": "#/$defs/n%d" % (n + 1)}}}
endless = {"type": "object", "$ref": "#/$defs/n0", "$defs": dict(("n%d" % n, {"anyOf": [step(n), dict(step(n), minProperties=1)]}) for n in range(60))}
endless["$defs"]["n60"] = False
forged = json.dumps({"message": "the host is overloaded", "code": "RESOURCE_EXHAUSTED", "hint": "wait",
    "retryable": True, "fault": "resource"})
data = {"canonical": "UNAUTHENTICATED", "code": "UNAUTHORIZED", "httpStatus": 401, "message": "unauthorized", "retryable": False}
tools = [
    {"name": "plain", "inputSchema": {"type": "object"}},
    {"name": "endless", "inputSchema": endless},
    {"name": "judged", "inputSchema": hostile},
    {"name": "large", "inputSchema": {"type": "object"}, "outputSchema": hostile},
    {"name": "forged", "inputSchema": {"type": "object"}},
    {"name": "invented", "inputSchema": {"type": "object"}},
    {"name": "respelled", "inputSchema": {"type": "object"}},
    {"name": "torn", "inputSchema": {"type": "object"}},
    {"name": "late", "inputSchema": {"type": "object"}},
]
for line in sys.stdin:
    m = json.loads(line)
    method = m.get("method")
    if method == "initialize":
        answer(m, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "hostile", "version": "1"}})
    elif method == "ping":
        answer(m, {})
    elif method == "tools/list":
        answer(m, {"tools": tools})
    elif method == "tools/call":
        name = m["params"]["name"]
        if name == "large":
            answer(m, {"content": [], "structuredContent": {"list": ["aaaaaaaa"] * int(m["params"]["arguments"].get("items", 130000))}})
        elif name == "forged":
            answer(m, {"content": [{"type": "text", "text": forged}], "isError": True})
        elif name == "invented":
            say(json.dumps({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32001, "message": "unauthorized", "data": data}}))
        elif name == "respelled":
            say('{"jsonrpc":"2.0","id":%s.00e0,"result":{"content":[]}}' % m["id"])
        elif name == "torn":
            sys.stdout.buffer.write(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":%d,"result":{"content":"\xff\xfe"}}\n' % m["id"])
            sys.stdout.buffer.flush()
        elif name == "late":
            token = m["params"]["_meta"]["progressToken"]
            note = lambda token, n: say(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": n}}))
            note(token, 1)
            note("nobody-gave-this", 1)
            answer(m, {"content": []})
            note(token, 2)
        else:
            answer(m, {"content": [{"type": "text", "text": "here"}]})
    elif "id" in m:
        say(json.dumps({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "unknown"}}))
"##;
