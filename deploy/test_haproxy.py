"""Many writers: HAProxy with the documented configuration before two replicas, of which one is drained and killed."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.app.web.test_server import child
from tests.paths import ROOT
from tests.running_app import free_port

NAME = "drafts.test"
WRITERS = [f"writer {number}" for number in range(12)]
KEY_S = 0.08  # between the keys of one of them

REPLICA = """
    import core.autocomplete
    from tests.fake_autocomplete import FakeAutocomplete

    def load(*_, **__):
        made = FakeAutocomplete()
        made.model.name, made.model.step_s = "{name}", 0.01
        return made.real()

    core.autocomplete.load_autocomplete = load
    from app.web.serving import serve

    serve(port={port}, page=False, allow_host=["drafts.test"])
"""


@dataclass
class Team:
    """Replicas behind the proxy, and what the writers were answered.

    Attributes:
        answers: by writer, for each key: when its answer came, its status, and the replica's name.
    """

    folder: Path
    port: int
    replicas: dict[str, subprocess.Popen[str]]
    proxy: subprocess.Popen[bytes]
    answers: dict[str, list[tuple[float, int, str]]] = field(default_factory=lambda: defaultdict(list))

    def write(self, writer: str, ended: threading.Event) -> None:
        """Types until the end: a request at every key, on a connection that is kept."""
        token = (self.folder / "XDG_DATA_HOME/polydraft/token").read_text().strip()
        trusted = ssl.create_default_context(cafile=str(self.folder / "proxy.pem"))
        headers = {"Authorization": f"Bearer {token}", "Host": NAME}
        connection = None
        text = "Once"
        while not ended.is_set():
            text += " a"
            body = json.dumps({"prompt": text, "n": 3, "max_tokens": 4, "user": writer})
            try:
                connection = connection or http.client.HTTPSConnection(
                    "127.0.0.1", self.port, context=trusted, timeout=10
                )
                connection.request("POST", "/v1/completions", body, headers)
                response = connection.getresponse()
                response.read()
                got = response.status, response.headers.get("X-Polydraft-Model", "")
            except (OSError, http.client.HTTPException) as error:
                got, connection = (0, repr(error)), None
            self.answers[writer].append((time.monotonic(), *got))
            time.sleep(KEY_S)

    def command(self, text: str) -> str:
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self.folder / "admin"))
            admin.sendall(f"{text}\n".encode())
            return b"".join(iter(lambda: admin.recv(4096), b"")).decode()

    def since(self, moment: float) -> dict[str, set[str]]:
        """The replicas that have answered each writer since a moment; every answer was a good one."""
        found: dict[str, set[str]] = {}
        for writer in WRITERS:
            later = [answer for answer in self.answers[writer] if answer[0] > moment]
            assert later, f"{writer} was not answered"
            assert {status for _, status, _ in later} == {200}, later
            found[writer] = {name for _, _, name in later}
        return found


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "Install HAProxy (Debian: apt-get install haproxy)."
    subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME},IP:127.0.0.1"]
    pem, key = tmp_path / "proxy.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-out", str(pem), "-keyout", str(key)], check=True, capture_output=True)
    (tmp_path / "both.pem").write_text(pem.read_text() + key.read_text())
    ports = {"one": free_port(), "two": free_port()}
    replicas = {name: child(REPLICA.format(name=name, port=port), tmp_path) for name, port in ports.items()}
    for replica in replicas.values():
        assert replica.stdout
        assert "serves drafts at" in replica.stdout.readline()
    port = free_port()
    env = os.environ | {
        "NAME": NAME, "LISTEN": f"127.0.0.1:{port}", "CERTIFICATE": str(tmp_path / "both.pem"),
        "REPLICA_1": f"127.0.0.1:{ports['one']}", "REPLICA_2": f"127.0.0.1:{ports['two']}",
        "ADMIN": str(tmp_path / "admin"),
    }  # fmt: skip
    proxy = subprocess.Popen([program, "-f", str(ROOT / "deploy/haproxy/haproxy.cfg"), "-db"], env=env)
    made = Team(tmp_path, port, replicas, proxy)
    deadline = time.monotonic() + 30
    while not (tmp_path / "admin").exists() or made.command("show servers state drafts").count(" 2 0 ") < 2:
        assert time.monotonic() < deadline and proxy.poll() is None
        time.sleep(0.1)
    yield made
    proxy.terminate()
    proxy.wait(20)
    for replica in replicas.values():
        replica.kill()
        replica.communicate()


def test_a_killed_replicas_writers_are_answered_by_the_other_at_their_next_key(team: Team) -> None:
    ended = threading.Event()
    threads = [threading.Thread(target=team.write, args=(writer, ended)) for writer in WRITERS]
    for thread in threads:
        thread.start()
    try:
        time.sleep(3)
        first = team.since(0)
        assert all(len(names) == 1 for names in first.values()), f"a writer stays with one replica: {first}"
        assert set.union(*first.values()) == {"one", "two"}, first
        of = {writer: next(iter(names)) for writer, names in first.items()}

        team.command("set server drafts/one state drain")
        time.sleep(1)
        moment = time.monotonic()
        time.sleep(1.5)
        assert set.union(*team.since(moment).values()) == {"two"}, "a drained replica gets no new request"
        team.command("set server drafts/one state ready")
        time.sleep(1)
        moment = time.monotonic()
        time.sleep(1.5)
        assert team.since(moment) == first, "and its own writers again when it is ready"

        team.replicas["one"].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        time.sleep(4)
        later = team.since(killed)
        assert all(later[writer] == {"two"} for writer in WRITERS if of[writer] == "two"), "the others stay"
        for writer in WRITERS:
            answers = [answer for answer in team.answers[writer] if answer[0] > killed]
            assert answers[-1][2] == "two"
            # What the killed replica had sent before may still arrive; the key after that is answered by the other one.
            assert [name for _, _, name in answers[1:] if name == "one"] == []
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert {status for answers in team.answers.values() for _, status, _ in answers} == {200}, "no key got an error"
