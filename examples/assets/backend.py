"""A backend to try populate_backend with: python3 backend.py PORT COMMAND...

It lives as long as the command, which finds it in SYN_BACKEND_URL. Every asset gets the next number
as its id; nothing is kept.
"""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Store(BaseHTTPRequestHandler):
    stored = 0

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        asset = json.loads(self.rfile.read(length))
        Store.stored += 1
        print(f"backend: POST {self.path} with {', '.join(asset)}", flush=True)
        answer = json.dumps({"id": f"asset-{Store.stored}"}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """What matters was printed."""


def main():
    port, command = int(sys.argv[1]), sys.argv[2:]
    with ThreadingHTTPServer(("127.0.0.1", port), Store) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = subprocess.run(command, env=os.environ | {"SYN_BACKEND_URL": url})
        server.shutdown()
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
