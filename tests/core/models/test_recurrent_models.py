"""Models with a recurrent memory, in llama.cpp: they read the text again after going back and in forks, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st
from tiny_families import VOCAB
from tiny_recurrent import NAMES, file_of, module_of

from core.errors import InputError, ModelFileError
from core.models import llamacpp, load_model, probe
from core.models.llamacpp import CANNOT_GO_BACK, LlamaCppModel
from core.superposed import superpose

CLOSE = 5e-3  # keys and values are kept in 16 bits
IDS = st.integers(3, VOCAB - 1)


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppModel]:
    path = tmp_path_factory.mktemp("models") / f"{request.param}.gguf"
    path.write_bytes(file_of(request.param).written())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llamacpp, "cores", lambda: 1)  # a second thread of a tiny model only waits for the first
        made = llamacpp.load(path, request.param)
    yield made
    made.close()


def fresh(model: LlamaCppModel, ids: list[int]) -> torch.Tensor:
    sequence = model.open()
    try:
        return sequence.feed(ids)
    finally:
        sequence.close()


def test_the_logits_are_those_of_transformers(model: LlamaCppModel) -> None:
    ids = [5, 17, 33, 60, 9, 2, 44, 70, 21, 8, 3, 90]
    sequence = model.open()
    found = sequence.feed_every(ids)
    sequence.close()
    expected = module_of(model.name)(torch.tensor([ids])).logits[0]
    assert (found - expected).abs().max() < (1e-4 if model.name == "mamba" else CLOSE)


def test_going_back_and_forks_read_the_text_again_in_the_next_pass_alone(
    model: LlamaCppModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    decode = model._decode
    monkeypatch.setattr(
        model, "_decode", lambda rows, part, *more: (passes.append(len(part)), decode(rows, part, *more))
    )
    ids = [3 + i * 7 % 90 for i in range(40)]
    with closing(model.open()) as sequence:
        sequence.feed(ids)
        sequence.rewind(36)
        with closing(sequence.fork()) as fork:
            sequence.rewind(10)
            assert passes == [40]
            for each, text in ((fork, ids[:36]), (sequence, ids[:10])):
                del passes[:]
                found = each.feed([5]), each.feed([6])
                assert passes == [len(text), 1, 1]
                for n, logits in enumerate(found):
                    assert (logits - fresh(model, [*text, 5, 6][: len(text) + 1 + n])).abs().max() < CLOSE


def test_superposed_positions_are_not_computed_again(model: LlamaCppModel) -> None:
    with closing(model.open()) as sequence:
        sequence.feed([4, 9])
        for n in (5, 6):
            sequence.feed_embedding(model.embeddings[n])
        sequence.rewind(3)
        with closing(sequence.fork()) as fork:
            for each in (sequence, fork):
                with pytest.raises(InputError, match="Superposed positions cannot be computed again"):
                    each.feed([7])
                each.rewind(2)
                assert (each.feed([7]) - fresh(model, [4, 9, 7])).abs().max() < CLOSE


def test_drafts_copy_no_state(model: LlamaCppModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def drafts(k: int) -> list[list[int]]:
        *_, last = superpose(model, [5, 17, 33, 60, 9], k=k, length=6)
        return last.ids

    expected = [drafts(k) for k in (1, 3)]
    monkeypatch.setattr(llamacpp.lib, "llama_memory_seq_cp", lambda *_: pytest.fail("a state is copied"))
    assert [drafts(k) for k in (1, 3)] == expected
    assert probe.measure(model).ok


def test_such_a_file_is_loaded_with_llama_cpp_and_the_page_says_what_it_cannot_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llamacpp, "cores", lambda: 1)

    def tried(backend: str, model: str, timeout: float) -> probe.ProbeResult:
        """In this process, because the imports of another one take seconds; `test_probe.py` starts those."""
        assert backend == "llama.cpp"
        with closing(llamacpp.load(Path(model), model)) as one:
            found.append(probe.measure(one))
        return found[-1]

    found: list[probe.ProbeResult] = []
    monkeypatch.setattr(probe, "probe", tried)
    path = tmp_path / "one.gguf"
    path.write_bytes(file_of("lfm2").written())
    made = load_model(str(path))
    assert [each.ok for each in found] == [True]
    try:
        assert made.backend == "llama.cpp"
        assert str(made.notice).endswith(CANNOT_GO_BACK.format("one"))
        assert not made.takes_trees
    finally:
        made.close()
    with pytest.raises(ModelFileError, match=r"one\.gguf is of the recurrent architecture lfm2"):
        load_model(str(path), backend="torch")
