"""A small web server that can misbehave, and a way to run one function in several processes at once."""

import multiprocessing
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Site:
    """Files served on the loopback address, with a record of what was asked for."""

    def __init__(self):
        self.files = {}
        self.content_type = "application/octet-stream"
        self.cut_after = None
        self.requests = []
        self.address = ""

    def url(self, file):
        return f"{self.address}/{file}"


def _handler(site):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.lstrip("/")
            site.requests.append(name)
            if name not in site.files:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", site.content_type)
            self.send_header("Content-Length", str(len(site.files[name])))
            self.end_headers()
            self.wfile.write(site.files[name][: site.cut_after])

        def log_message(self, *arguments):
            pass

    return Handler


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
    site.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def together():
    """Call a function in n processes that start it at the same moment; returns their exit codes."""
    context = multiprocessing.get_context("fork")

    def run(function, processes):
        gate = context.Barrier(processes)

        def wait_and_call():
            gate.wait()
            function()

        started = [context.Process(target=wait_and_call) for _ in range(processes)]
        for process in started:
            process.start()
        for process in started:
            process.join()
        return [process.exitcode for process in started]

    return run


@pytest.fixture(autouse=True)
def _no_mirror_from_outside(monkeypatch):
    monkeypatch.delenv("FEDTIDE_MIRROR", raising=False)
