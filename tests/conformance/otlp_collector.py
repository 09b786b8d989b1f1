"""A collector: reads what is posted with OpenTelemetry's own message types, and prints it.

The first line is the port. Each post is one line of JSON: its path, its headers, and its spans or
histograms with their attributes as plain members. What is no OTLP ends the program.
"""

import http.server
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MESSAGES = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


def plain(attributes):
    return {one["key"]: next(iter(one["value"].values())) for one in attributes}


def looked_at(path, posted):
    # Strict: a member that the message does not have is refused.
    json_format.ParseDict(posted, MESSAGES[path]())
    found = []
    for resource in posted.get("resourceSpans", []):
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                found.append({**span, "attributes": plain(span["attributes"]), "resource": plain(resource["resource"]["attributes"])})
    for resource in posted.get("resourceMetrics", []):
        for scope in resource["scopeMetrics"]:
            for metric in scope["metrics"]:
                for point in metric["histogram"]["dataPoints"]:
                    found.append({**point, "name": metric["name"], "unit": metric["unit"], "attributes": plain(point["attributes"])})
    return found


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        line = {"path": self.path, "key": self.headers.get("x-key"), "found": looked_at(self.path, json.loads(body))}
        print(json.dumps(line), flush=True)
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Collector)
print(server.server_address[1], flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    sys.exit(0)
