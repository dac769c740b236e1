"""`polydraft models get` against a server on this machine that answers as the Hub does."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from app.cli.main import app
from core.errors import InputError, ModelNotFound, NoConnection, PolydraftError
from core.files import claim
from core.hub import connection, download, listing
from core.hub.download import DownloadStep, check_room
from core.hub.listing import Remote, find, type_of
from tests.fake_hub import FILE, FILES, FakeHub, fake_hub

SHA256 = hashlib.sha256(FILE).hexdigest()
PART = f"tiny.Q8_0.gguf.{SHA256[:16]}.part"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """The Hub of this process; the models folder is in `tmp_path`."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("core.models.on_machine.models_folder", lambda: tmp_path / "models")
    monkeypatch.setattr(download, "PAUSES", (0.01, 0.01))
    with fake_hub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The models folder, which exists."""
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def got(name: str) -> Any:
    return CliRunner().invoke(app, ["models", "get", name])


def refused(name: str) -> str:
    """The sentence with which the command ends. Others on stderr are what it tells while it works."""
    done = got(name)
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.exception
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith("Error: ") and done.stderr.count("Error: ") == 1
    return sentence


@pytest.mark.parametrize("pasted", ["owner/tiny-GGUF:q8_0", "{url}/owner/tiny-GGUF/blob/main/tiny.Q8_0.gguf"])
def test_a_file_comes_by_its_type_or_its_address_into_the_models_folder(
    hub: FakeHub, tmp_path: Path, pasted: str
) -> None:
    done = got(pasted.format(url=hub.url))
    assert done.exit_code == 0, done.output
    path = tmp_path / "models" / "tiny.Q8_0.gguf"
    assert path.read_bytes() == FILE
    assert [*path.parent.iterdir()] == [path]
    assert f"polydraft --model {path}" in done.stdout
    assert "Asking 127.0.0.1" in done.stderr and "tiny.Q8_0.gguf: 24 MB" in done.stderr
    assert got("owner/tiny-GGUF:Q8_0").exit_code == 0  # it is there, and not sent again
    assert hub.ranges == [None]


def test_a_type_ends_a_name_in_any_case_and_after_a_prefix(hub: FakeHub) -> None:
    assert find("owner/tiny-GGUF:ud-q4_k_xl").file == find("owner/tiny-GGUF:Q4_K_XL").file == "tiny-UD-Q4_K_XL.gguf"
    assert find("hf.co/owner/tiny-GGUF").file == "tiny.Q4_K_M.gguf", "the preferred type"


def test_a_download_says_how_far_it_is(hub: FakeHub, folder: Path) -> None:
    steps = [*download.download("owner/tiny-GGUF:Q8_0", folder)]
    size, path = len(FILE), folder / "tiny.Q8_0.gguf"
    assert steps[0] == DownloadStep("asking")
    assert steps[-1] == DownloadStep("done", "tiny.Q8_0.gguf", size, size, path)
    come = [step.come for step in steps if step.stage == "coming"]
    assert come == sorted(come) and len(come) > 100 and {step.bytes for step in steps[1:]} == {size}


def test_a_download_that_is_stopped_goes_on_from_there(hub: FakeHub, folder: Path) -> None:
    steps = download.download("owner/tiny-GGUF:Q8_0", folder)
    come = next(step.come for step in steps if step.come > 1_000_000)
    steps.close()
    assert download.parts(folder) == {"tiny.Q8_0.gguf": come}
    assert [*download.download("owner/tiny-GGUF:Q8_0", folder)][-1].path == folder / "tiny.Q8_0.gguf"
    assert hub.ranges == [None, f"bytes={come}-"]
    assert (folder / "tiny.Q8_0.gguf").read_bytes() == FILE and not download.parts(folder)


def test_a_connection_that_ends_too_early_is_taken_up_where_it_stopped(hub: FakeHub, tmp_path: Path) -> None:
    hub.cut = 15_000_000
    done = got("owner/tiny-GGUF:Q8_0")
    assert done.exit_code == 0 and "Trying again" in done.stderr
    assert (tmp_path / "models" / "tiny.Q8_0.gguf").read_bytes() == FILE
    assert hub.ranges == [None, "bytes=15000000-"]


# ---------------------------------------------------------------- what was there before


def test_a_file_of_another_repository_stays_and_the_new_one_gets_another_name(hub: FakeHub, folder: Path) -> None:
    for name in ("owner/tiny-GGUF:Q8_0", "another/tiny-GGUF:Q8_0", "another/tiny-GGUF:Q8_0"):
        assert got(name).exit_code == 0
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert files == {"tiny.Q8_0.gguf": FILE, "another--tiny-GGUF--tiny.Q8_0.gguf": FILE + b"another"}
    assert hub.ranges == [None, None], "each came once"


def test_a_file_with_another_digest_is_removed_and_one_that_was_there_stays(hub: FakeHub, folder: Path) -> None:
    mine = folder / "tiny.Q8_0.gguf"
    mine.write_bytes(b"m" * len(FILE))
    hub.stated = "0" * 64
    assert "SHA-256" in refused("owner/tiny-GGUF:Q8_0")
    assert [*folder.iterdir()] == [mine] and mine.read_bytes() == b"m" * len(FILE)


def test_two_programs_do_not_write_the_same_part(hub: FakeHub, folder: Path) -> None:
    with (folder / PART).open("ab") as file:
        claim(file)
        assert "Another program is downloading tiny.Q8_0.gguf" in refused("owner/tiny-GGUF:Q8_0")


# ---------------------------------------------------------------- what a network does


def test_a_hub_that_cannot_be_reached_is_said_in_a_sentence(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    assert "cannot be reached" in refused("owner/tiny-GGUF") and "check the connection" in refused("owner/tiny-GGUF")
    monkeypatch.setattr(constants, "ENDPOINT", "hub.example")
    assert "protocol" in refused("owner/tiny-GGUF")


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("circle", "in a circle; does this network ask for a login?"),
        ("silent", "sent nothing for 0.3 s"),
        ("page", "answered with a web page and not with the files of owner/tiny-GGUF"),
        (429, "takes no more requests"),
        (403, "set HF_TOKEN"),
        (401, "no public model"),
        (503, "status 503"),
        (302, "status 302"),
    ],
)
def test_a_hub_that_does_not_list_its_files_is_said_in_a_sentence(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, fails: Any, said: str
) -> None:
    monkeypatch.setattr(connection, "ANSWER", 0.3)
    hub.fails = fails
    assert said in refused("owner/tiny-GGUF")


@pytest.mark.parametrize(
    ("spoils", "said"),
    [
        ("silent", "sent nothing for 0.3 s"),
        ("page", "sent a web page"),
        (500, "status 500"),
    ],
)
def test_what_has_come_is_kept_whatever_the_network_does_later(
    hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch, spoils: Any, said: str
) -> None:
    (folder / PART).write_bytes(FILE[:5_000_000])
    hub.spoils = spoils
    with monkeypatch.context() as hasty:
        hasty.setattr(connection, "ANSWER", 0.3)
        assert said in refused("owner/tiny-GGUF:Q8_0")
    assert download.parts(folder) == {"tiny.Q8_0.gguf": 5_000_000}
    hub.spoils = ""
    assert got("owner/tiny-GGUF:Q8_0").exit_code == 0


def test_nothing_is_left_where_nothing_came(hub: FakeHub, folder: Path) -> None:
    hub.spoils = 500
    assert "what has come is kept" in refused("owner/tiny-GGUF:Q8_0")
    assert not [*folder.iterdir()]


def test_a_server_that_sends_more_than_the_hub_states_is_refused(hub: FakeHub, folder: Path) -> None:
    hub.more = 600_000
    assert f"more than the {len(FILE):,} bytes" in refused("owner/tiny-GGUF:Q8_0")
    assert not [*folder.iterdir()]


def test_a_part_that_is_larger_than_the_file_is_dropped(hub: FakeHub, folder: Path) -> None:
    (folder / PART).write_bytes(FILE + bytes(1000))
    assert got("owner/tiny-GGUF:Q8_0").exit_code == 0
    assert (folder / "tiny.Q8_0.gguf").read_bytes() == FILE


def test_a_server_that_has_no_such_byte_sends_the_file_from_its_beginning(
    hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = FILE[:10_000_000]
    whole = Remote("owner/tiny-GGUF", "tiny.Q8_0.gguf", len(FILE), SHA256, f"{hub.url}/owner/tiny-GGUF/resolve/main/x")
    monkeypatch.setitem(FILES, "x", short)  # what the server has became shorter meanwhile
    (folder / PART).write_bytes(FILE[:11_000_000])
    with pytest.raises(NoConnection, match="did not come completely"):
        [*download.get(whole, folder)]
    monkeypatch.setitem(FILES, "x", FILE)
    assert [*download.get(whole, folder)][-1].path == folder / "tiny.Q8_0.gguf"


def test_a_file_that_is_no_gguf_is_refused_at_its_first_bytes(hub: FakeHub, tmp_path: Path) -> None:
    assert "begin with b'<htm'" in (said := refused("owner/odd")) and "b'GGUF'" in said
    assert not [*(tmp_path / "models").iterdir()]


def test_a_file_that_no_program_loads_is_no_success(hub: FakeHub, tmp_path: Path) -> None:
    said = refused("owner/broken")
    assert "no model that can be loaded" in said and str(tmp_path / "models" / "broken.Q8_0.gguf") in said


def test_a_proxy_that_cannot_be_is_said_in_a_sentence(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "nonsense://127.0.0.1:1")
    assert "HTTPS_PROXY" in refused("owner/tiny-GGUF")


def test_a_token_goes_to_the_hub_alone(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "get_token", lambda: "hf_secret")
    with connection.connected() as client:
        here = client.build_request("GET", hub.url)
        assert here.headers["Authorization"] == "Bearer hf_secret"
        moved = httpx.Response(302, headers={"Location": "http://elsewhere.example/file"}, request=here)
        assert "Authorization" not in client._build_redirect_request(here, moved).headers
    monkeypatch.setattr(connection, "get_token", lambda: "hf_sécret")
    assert "HF_TOKEN" in refused("owner/tiny-GGUF")


def test_an_environment_that_forbids_connections_is_respected(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in refused("owner/tiny-GGUF")
    assert not hub.asked


# ---------------------------------------------------------------- what is not there


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("owner/unknown", ModelNotFound, "no public model"),
        ("owner/tiny-GGUF:Q5_K_M", ModelNotFound, r"it has Q4_K_M, Q8_0.*models get owner/tiny-GGUF:Q4_K_M"),
        ("owner/tiny-GGUF:none.gguf", ModelNotFound, r"no file 'none.gguf'"),
        ("owner/parts", ModelNotFound, "only files in parts"),
        ("owner/none", ModelNotFound, "no GGUF file"),
        ("tiny", InputError, "OWNER/REPO"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_what_cannot_be_had_is_said_in_a_sentence(name: str, error: type[PolydraftError], said: str) -> None:
    with pytest.raises(error, match=said):
        find(name)


def test_a_name_that_would_control_the_terminal_is_left_out(hub: FakeHub) -> None:
    with pytest.raises(ModelNotFound, match=r"it has Q4_0\."):
        find("owner/names:Q8_0")


def test_a_list_of_files_without_an_end_is_refused(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_LIST", 100)
    with pytest.raises(NoConnection, match="without an end"):
        find("owner/tiny-GGUF")


def test_a_full_disk_is_said_before_anything_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000_000))
    check_room(Remote("a/b", "x.gguf", 700_000_000, None, ""), tmp_path)
    with pytest.raises(InputError, match=r"0\.9 GB.*1\.0 GB free"):
        check_room(Remote("a/b", "x.gguf", 900_000_000, None, ""), tmp_path)


def test_types_are_read_from_names() -> None:
    names = ["a.Q8_0.gguf", "a-q4_k_m.gguf", "b/c-IQ4_XS.gguf", "a-BF16.gguf", "a-UD-Q4_K_XL.gguf", "a-TQ1_0.gguf"]
    assert [type_of(name) for name in names] == ["Q8_0", "Q4_K_M", "IQ4_XS", "BF16", "UD-Q4_K_XL", "TQ1_0"]
    assert [type_of(name) for name in ("a.gguf", "Q4.5.gguf")] == ["", ""]
