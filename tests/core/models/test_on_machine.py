"""Models in the folders of other programs are found, read and left as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import constants
from tiny_gguf import U32, Field, tiny

from core.models.on_machine import on_machine, read_about


@pytest.fixture
def home(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user who has no models yet."""
    for name in ("OLLAMA_MODELS", "LLAMA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(own_folders))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(own_folders / "hub"))
    return own_folders


def write(path: Path, data: bytes = b"x" * 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_models_of_every_program_are_listed_once(home: Path) -> None:
    own = write(home / "own" / "mine.gguf")
    write(home / "own" / "notes.txt")
    write(home / "own" / "folder" / "config.json", b"{}")
    old = write(home / "hub" / "models--a--b" / "snapshots" / "1" / "old.gguf")
    new = write(home / "hub" / "models--a--b" / "snapshots" / "2" / "Q4" / "new.gguf")
    write(new.parent / "mmproj-new.gguf")
    tensors = write(home / "hub" / "models--a--c" / "snapshots" / "1" / "model.safetensors")
    write(tensors.with_name("config.json"), b"{}")
    write(home / ".lmstudio" / "models" / "owner" / "repo" / "studio.gguf")
    blobs = home / ".ollama" / "models" / "blobs"
    write(blobs / "sha256-12")
    layers = [
        {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:99"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:12"},
    ]
    manifests = home / ".ollama" / "models" / "manifests" / "registry.ollama.ai" / "library"
    write(manifests / "qwen3" / "0.6b", json.dumps({"layers": layers}).encode())
    write(manifests / "broken" / "latest", b"{")
    outside = [{"mediaType": "application/vnd.ollama.image.model", "digest": "../../../own/mine.gguf"}]
    write(manifests / "hostile" / "latest", json.dumps({"layers": outside}).encode())
    (home / "cache" / "llama.cpp").mkdir()
    (home / "cache" / "llama.cpp" / "same.gguf").symlink_to(own)
    found = {(each.source, each.name) for each in on_machine(home / "own")}
    assert found == {
        ("Polydraft", "mine"),
        ("Polydraft", "folder"),
        ("Hugging Face", "new"),
        ("Hugging Face", "a/c"),
        ("LM Studio", "studio"),
        ("Ollama", "qwen3:0.6b"),
    }
    assert old.exists()
    assert [each.bytes for each in on_machine(home / "own") if each.name == "qwen3:0.6b"] == [10]


def test_a_machine_without_any_has_none(home: Path) -> None:
    assert on_machine(home / "own") == []


def test_a_file_says_its_type_and_family_and_whether_it_runs_compiled(home: Path) -> None:
    made = tiny()
    path = write(home / "a.gguf", made.written())
    about = read_about(path)
    assert (about.family, about.type, about.unusable) == ("llama", "Q8_0", "")
    made.fields["general.file_type"] = Field(U32, 15)
    assert read_about(write(home / "b.gguf", made.written())).type == "Q4_K_M"
    made.fields["general.file_type"] = Field(U32, 9999)
    assert read_about(write(home / "c.gguf", made.written())).type == "Q8_0"
    assert "GGUF" in read_about(write(home / "d.gguf")).unusable
    made.fields["general.architecture"].value = "falcon"
    assert "falcon" in read_about(write(home / "e.gguf", made.written())).slower
    write(home / "folder" / "config.json", b'{"model_type": "qwen3"}')
    assert read_about(home / "folder").family == "qwen3"
