"""The part of Prometheus' HTTP API that the preview uses, with given answers. Other queries are refused."""

import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

LABELS = {"node": ["other", "n2.x", "n1"]}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(dict(parse_qsl(urlsplit(self.path).query)))

    def do_POST(self):
        self.answer(dict(parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode())))

    def answer(self, given):
        path = urlsplit(self.path).path
        if path.startswith("/api/v1/label/"):
            return self.send(LABELS[path.split("/")[4]])
        expr = given["query"]
        self.server.asked.append(expr)
        if expr not in self.server.answers:
            return self.send(f"not canned: {expr}", "error", 400)
        series = self.server.answers[expr]
        if path.endswith("/query"):
            at = float(given["time"])
            result = [{"metric": one["metric"], "value": [at, str(one["values"][-1])]} for one in series]
            return self.send({"resultType": "vector", "result": result})
        start, end, step = (float(given[name]) for name in ("start", "end", "step"))
        count = math.floor((end - start) / step) + 1
        result = []
        for one in series:
            values = [one["values"][i * len(one["values"]) // count] for i in range(count)]
            result.append({"metric": one["metric"], "values": [[start + i * step, str(v)] for i, v in enumerate(values) if v is not None]})
        return self.send({"resultType": "matrix", "result": result})

    def send(self, data, status="success", code=200):
        body = json.dumps({"status": status, "data" if status == "success" else "error": data}).encode()
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Logs nothing; requests are kept."""


class FakePrometheus(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answers):
        super().__init__(("127.0.0.1", 0), Answers)
        self.answers = answers
        self.asked = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"
