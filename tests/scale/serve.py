"""Serves a cluster: one port, a path per node, and the list of nodes for http_sd_configs at /targets."""

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from testbed.processes import die_with_parent

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Server(ThreadingHTTPServer):
    daemon_threads = True
    # All nodes may be scraped at once.
    request_queue_size = 1024

    def __init__(self, cluster):
        super().__init__(("127.0.0.1", 0), Handler)
        self.cluster = cluster
        # `Cluster` caches texts and is not thread-safe; Python runs one thread at a time anyway.
        self.lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        cluster, parts = self.server.cluster, url.path.split("/")
        if url.path == "/targets":
            address = "{}:{}".format(*self.server.server_address)
            return self.answer("application/json", json.dumps(cluster.targets(address)))
        if len(parts) == 4 and parts[1] == "node" and parts[3] == "metrics" and parts[2].isdigit():
            openmetrics = "application/openmetrics-text" in self.headers.get("Accept", "")
            with self.server.lock:
                text = cluster.page(int(parts[2]), time.time(), openmetrics)
            return self.answer(OPENMETRICS if openmetrics else TEXT, text)
        return self.send_error(404)

    def answer(self, kind, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(cluster):
    """Serves a cluster in its own process, for a with block: (address, pid)."""
    server, parent = Server(cluster), os.getpid()

    def run():
        die_with_parent(parent, signal.SIGKILL)
        server.serve_forever()

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    server.socket.close()
    try:
        yield "{}:{}".format(*server.server_address), process.pid
    finally:
        process.kill()
        process.join()
