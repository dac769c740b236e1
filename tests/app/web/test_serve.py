"""`polydraft serve`: the service without the page, its access control, and its output."""

from __future__ import annotations

import http.client
import json
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.service.service import DraftService
from app.web.security.access import Access
from app.web.serving import _tell, serve, tell_programs
from app.web.site import create_service_app
from core.errors import InputError
from tests.app.site import Site
from tests.app.web.test_server import child
from tests.fake_autocomplete import FakeAutocomplete

# Its model is never loaded: the imports alone take seconds.
SCRIPT = """
    import sys
    from app.web import serving

    serving.DraftService.start = lambda self: None
    serving.serve(port=0, page=False, host={host!r})
    assert "gradio" not in sys.modules, "the page's library is not loaded"
"""
OTHER = "127.0.0.2" if sys.platform.startswith("linux") else "127.0.0.1"  # other systems have one address of their own


@dataclass
class Served:
    process: subprocess.Popen[str]
    home: Path
    address: str  # its first line


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("served")
    with child(SCRIPT.format(host=OTHER), home) as process:
        assert process.stdout
        yield Served(process, home, process.stdout.readline())
        process.kill()


@pytest.mark.skipif(OTHER == "127.0.0.1", reason="other systems have one address of this machine")
def test_programs_do_not_find_a_server_at_another_address(served: Served) -> None:
    """They send the token to 127.0.0.1, where another user may have the port."""
    assert served.address.startswith("Polydraft serves drafts at http://127.0.0.2:")
    assert list((served.home / "XDG_DATA_HOME" / "polydraft").glob("running-*")) == []
    assert served.process.poll() is None


def test_it_prints_its_address_and_ends_quietly(served: Served) -> None:
    process, line = served.process, served.address
    assert line.startswith(f"Polydraft serves drafts at http://{OTHER}:")
    assert "/v1/completions, /v1/models, /infill, /health." in line
    assert process.stdout and "`polydraft token`" in process.stdout.readline()
    port = int(line.split(":")[2].split(":")[0])
    connection = http.client.HTTPConnection(OTHER, port, timeout=20)
    connection.request("GET", "/v1/models", headers={"Host": f"127.0.0.1:{port}"})
    response = connection.getresponse()
    assert response.status == 401
    assert json.loads(response.read())["error"]["code"] == "invalid_api_key"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == ("", "", 0)


@pytest.mark.parametrize(
    ("host", "token", "warnings"),
    [
        ("127.0.0.1", True, []),
        ("127.0.0.1", False, ["without a token every user and every program of this machine"]),
        ("0.0.0.0", True, ["--host 0.0.0.0 gives other machines access", "not encrypted"]),
        ("0.0.0.0", False, ["gives other machines access", "without a token every program that reaches this machine"]),
    ],
)
def test_open_doors_are_warned_of_in_words(
    host: str, token: bool, warnings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    tell_programs("Polydraft serves drafts at", host, 1234, Access("secret") if token else None)
    out, err = capsys.readouterr()
    assert f"http://{host}:1234" in out
    assert ("secret" in out, "polydraft token" in out) == (False, token)
    assert bool(err) == bool(warnings)
    assert all(words in err for words in warnings)
    if host == "127.0.0.1":  # the page
        _tell("Polydraft is at", 1234, Access("secret") if token else None, open_browser=False)
        out, err = capsys.readouterr()
        assert out == "Polydraft is at http://127.0.0.1:1234" + "/?token=secret" * token + "\n"
        assert err.startswith("" if token else "Warning: without a token every user and every program")


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(InputError, match=r"203\.0\.113\.7 is no IPv4 address of this machine"):
        serve(port=0, page=False, host="203.0.113.7")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_other_machines_have_access_by_ip_address_only_with_the_option(elsewhere: bool) -> None:
    """A page elsewhere can point a name of its own to this machine, but not an address."""
    access = Access(secrets.token_urlsafe(32))
    app = create_service_app(DraftService(FakeAutocomplete().real), access, elsewhere)
    client = TestClient(app, base_url="http://127.0.0.1:7893")

    def status(host: str, **headers: str) -> int:
        headers |= {"Host": f"{host}:7893", "Authorization": f"Bearer {access.token}"}
        return client.get("/v1/models", headers=headers).status_code

    assert status("127.0.0.1") == 200
    far = 200 if elsewhere else 403
    assert [status(host) for host in ("192.168.1.5", "[fd00::5]", socket.gethostname())] == [far] * 3
    assert status("evil.example") == 403
    assert status("192.168.1.5", Origin="http://evil.example") == 403


def test_a_connection_that_closes_before_its_body_has_come_is_no_error(
    site: Site, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", site.port)) as connection:
        head = ["POST /v1/completions HTTP/1.1", f"Host: 127.0.0.1:{site.port}", "Content-Length: 100"]
        head.append(f"Authorization: Bearer {site.access.token}")
        connection.sendall("\r\n".join([*head, "", ""]).encode())
        time.sleep(0.1)
    time.sleep(0.2)
    assert (caplog.messages, capfd.readouterr().err) == ([], "")
