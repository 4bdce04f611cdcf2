"""GitHub for ARC and its runners: the service of scale sets by TLS, with sets that come and go, and what runners ask.

Paths and answers are those that actions/scaleset v0.4.0 asks for (client.go, session_client.go), as ARC 0.14.2 has it.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import re
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.fakes.github.scale_set_service import ScaleSetService, handler


class ArcService(ScaleSetService):
    """As its base, with runners that ask for a job, and report its end.

    ``ends`` are the jobs that may end; ``results`` how each did; ``seen`` what each runner said, by name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ends: set[int] = set()
        self.results: dict[int, str] = {}
        self.seen: dict[str, list[str]] = {}
        self.of_session: dict[str, int] = {}

    def ask(self, job: int, label: str) -> None:
        """Have a job for the scale set with a label; without one it waits for ever, as at GitHub."""
        with self.changed:
            if any(label in {each["name"] for each in one["labels"]} for one in self.sets.values()):
                self.offer(job)

    def runner(self, name: str, word: str) -> str:
        """Answer a runner: whether it has a ``job``, and whether that may ``end``; hear ``done`` and ``cancelled``."""
        with self.changed:
            if word not in {"job", "end"}:
                self.seen.setdefault(name, []).append(word)
            mine = [number for number, job in self.jobs_of_set.items() if job.get("runner") == name]
            if word == "job" and not mine:
                waiting = [number for number, job in self.jobs_of_set.items() if job["state"] == "assigned"]
                if waiting and any(each["name"] == name for each in self.runners.values()):
                    self.start(waiting[0], name)
                    return str(waiting[0])
            if word == "end" and mine and mine[0] in self.ends:
                return "yes"
            if word in {"done", "cancelled"} and mine:
                self.results[mine[0]] = "succeeded" if word == "done" else "cancelled"
                self.finish(name)
                self.complete(mine[0], "canceled")  # the runner is gone already
            return ""

    def register(self, name: str) -> dict[str, Any] | None:
        """Register a runner by a number that none has had: ARC may still ask for the removal of one that is gone."""
        runner = super().register(name)
        if runner:
            del self.runners[runner["id"]]
            runner["id"] = self.number()
            self.runners[runner["id"]] = runner
        return runner

    def part(self, kind: str, request: int, **more: Any) -> dict[str, Any]:
        """Return a message as the base does, with the runner's number."""
        number = next((each["id"] for each in self.runners.values() if each["name"] == more.get("runnerName")), 0)
        return {**super().part(kind, request, **more), "runnerId": number}

    def service(self, method: str, path: str, headers: Any, body: Any) -> tuple[int, Any]:
        """Answer below the API of GitHub Enterprise Server, too, and give a token that says when it ends."""
        path = path.removeprefix("/api/v3")
        if path == "/actions/runner-registration":
            body = {**body, "url": "https://github.com/acme"}
        status, answer = super().service(method, path, headers, body)
        if path == "/actions/runner-registration" and status == 201:
            claims = json.dumps({"exp": int(time.time()) + 3600, "jti": answer["token"]}).encode()
            words = (
                base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in (b'{"alg":"HS256"}', claims, b"x")
            )
            self.admins.add(token := ".".join(words))
            answer["token"] = token
        return status, answer

    def _admin(self, method: str, path: str, session: Any, body: Any, query: dict[str, list[str]]) -> tuple[int, Any]:
        if path.startswith("/_apis/runtime/runnergroups"):
            return 200, {"count": 1, "value": [{"id": 1, "name": "default", "isDefaultGroup": True}]}
        one = re.fullmatch(r"/_apis/runtime/runnerscalesets/(\d+)", path)
        if one and method == "GET":
            found = self.sets.get(int(one[1]))
            return (200, found) if found else (404, {"typeName": "RunnerScaleSetNotFoundException", "message": "gone"})
        if one and method == "DELETE":
            self.sets.pop(int(one[1]), None)
            for name in [each for each, number in self.of_session.items() if number == int(one[1])]:
                self.sessions.pop(name, None)
            return 204, None
        if path == "/_apis/distributedtask/pools/0/agents" and method == "GET":
            named = [each for each in self.runners.values() if [each["name"]] == query.get("agentName")]
            return 200, {"count": len(named), "value": named}
        status, answer = super()._admin(method, path, session, body, query)
        if method == "DELETE" and status == 404 and "/agents/" in path:
            return 204, None  # ARC takes 404 for a failure and asks for ever (ephemeralrunner_controller.go:842)
        for each in self.sets.values():
            each["runnerGroupName"] = "default"
        if path.endswith("/sessions") and status == 200:
            self.of_session[answer["sessionId"]] = int(path.split("/")[-2])
        return status, answer

    def _session(self, name: str) -> dict[str, Any]:
        """Return a session, whose name is a UUID."""
        return super()._session(str(uuid.uuid5(uuid.NAMESPACE_URL, name)) if name.startswith("session-") else name)


def certificate(folder: Path, address: str) -> tuple[Path, Path]:
    """Write a certificate for an address, which is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "GitHub")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "github.crt", folder / "github.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


@contextmanager
def served_by_tls(address: str, certificate: tuple[Path, Path]) -> Iterator[ArcService]:
    """Serve an empty GitHub at an address' port 443."""
    world = ArcService()

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        path = urlsplit(request.path).path
        world.requests.append(f"{request.command} {path}")
        if match := re.fullmatch(r"/runner/([^/]+)/([a-z]+)", path):
            return 200, world.runner(match[1], match[2]).encode()
        status, result = world.service(request.command, request.path, request.headers, json.loads(body or b"null"))
        return status, b"" if result is None else json.dumps(result).encode()

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = Server((address, 443), handler(answer))
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    world.address = f"https://{address}"
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    try:
        yield world
    finally:
        server.shutdown()
        server.server_close()
