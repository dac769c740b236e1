"""Numbers that are not finite, of damaged weights or an adapter made to break the model: a sentence, and no draft."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from table_model import TableModel
from tiny_gguf import Sizes, tiny
from torch import Tensor

from app.service.service import DraftService
from core.autocomplete import Autocomplete
from core.controls import MODES
from core.errors import ModelFileError, NotFinite
from core.models import hf, load_model
from core.models.adapter import Adapter, AdapterError, LowRank, Projection
from core.models.base import LanguageModel, Row
from core.models.static import StaticModel
from core.models.torch_model import TorchModel
from core.modes.start import Mode, draft
from tests.app.service.test_engine_errors import TEXTS, answers, texts
from tests.core.models.test_adapter import adapter_for, of_model
from tests.core.modes.test_speculated import LENGTH, PREFIX, STOP, speculating

pytestmark = pytest.mark.usefixtures("one_thread")

BAD = (math.nan, math.inf, -math.inf)
WAYS = [*MODES, "greedy, lossless", "sampled, lossless"]


class Watched(TableModel):
    """Records whether a pass computed a number that is not finite."""

    bad = False

    def _forward(self, rows: list[Row]) -> list[Tensor]:
        found = super()._forward(rows)
        self.bad = self.bad or any(not bool(x.isfinite().all()) for x in found)
        return found


@settings(max_examples=60)
@given(
    way=st.sampled_from(WAYS),
    cells=st.lists(st.tuples(*[st.integers(0, 5)] * 3, st.sampled_from(BAD)), min_size=1, max_size=4),
)
@example(way="superposed", cells=[(3, 1, 0, math.nan)])  # the first pass
def test_no_mode_makes_a_draft_from_numbers_that_are_not_finite(
    way: str, cells: list[tuple[int, int, int, float]]
) -> None:
    model = Watched()
    name, _, how = way.partition(", ")
    mode = speculating(model, name, how)[0] if how else Mode(name)
    for *cell, value in cells:
        model.table[tuple(cell)] = value
    sequence = model.open()
    try:
        *_, drafts = draft(model, PREFIX, mode, k=3, length=LENGTH, stop_ids=STOP, sequence=sequence)
    except NotFinite as error:
        assert model.bad
        assert str(error).startswith("table computed numbers that are not finite")
        assert "\n" not in str(error)
    else:
        assert not model.bad
        assert all(map(math.isfinite, drafts.logprobs))
    # The text is in the cache as it was, and the next request is answered.
    assert sequence.inputs in ([], PREFIX)
    model.table.nan_to_num_(0, 0, 0)
    *_, drafts = draft(model, PREFIX, mode, k=3, length=LENGTH, stop_ids=STOP, sequence=sequence)
    assert drafts.ids


@given(
    numbers=st.lists(st.floats(width=32) | st.just(3e38) | st.just(-3e38), min_size=1, max_size=6),
    repeated=st.integers(1, 40),
)
def test_every_number_that_is_not_finite_is_seen_and_no_other(numbers: list[float], repeated: int) -> None:
    from core.models.base import finite

    assert finite(torch.tensor(numbers * repeated)) == all(map(math.isfinite, numbers))


def test_an_error_of_one_tab_is_said_there_and_the_others_go_on(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = hf.load(tiny_folder("compiled llama"), "tiny")
    service = DraftService(lambda _: Autocomplete(model), pace=0)
    monkeypatch.setattr(TorchModel, "close", lambda self: None)  # needed again below
    service.start()
    calm = [texts(events) for events in answers(service, 0).values()]  # of the texts of TEXTS
    real, (night,) = TorchModel._forward, model.tokenizer.encode("N")

    def breaks(self: TorchModel, rows: list[Row]) -> list[Tensor]:
        """As weights would that break after one text alone."""
        found = real(self, rows)
        for row, logits in zip(rows, found, strict=True):
            inputs = [*row.sequence.inputs, *(row.inputs if isinstance(row.inputs, list) else [])]
            if night in inputs and len(inputs) > 4:
                logits[..., -1] = torch.nan
        return found

    monkeypatch.setattr(TorchModel, "_forward", breaks)
    n = 6  # no tab has its earlier text
    for i, events in enumerate(answers(service, n).values()):
        of = (n + i) % len(TEXTS)
        if TEXTS[of].startswith("N"):
            assert events[-1]["type"] == "error"
            assert "tiny computed numbers that are not finite" in events[-1]["message"]
            assert "choose another model" in events[-1]["message"]
        else:
            assert texts(events) == calm[of]
    assert service.status()["ready"]
    service.close()


# ---------------------------------------------------------------- adapters


def broken(adapter: Adapter) -> Adapter:
    """The same with factors of 1e19, finite in the file, whose product is not."""
    maps = {projection: LowRank(low.a.sign() * 1e19, low.b.sign() * 1e19) for projection, low in adapter.maps.items()}
    return replace(adapter, maps=maps)


def made_for(model: LanguageModel, shapes: dict[Projection, tuple[int, int]]) -> Adapter:
    return of_model(model, adapter_for(shapes, ["q_proj", "down_proj"], size=0.1))


@pytest.mark.parametrize("engine", ["compiled", "layers", "static"])
def test_an_adapter_that_breaks_the_numbers_is_refused_and_the_one_before_stays(
    tiny_folder: Callable[[str], Path], engine: str
) -> None:
    plain = hf.load(tiny_folder("compiled llama"), "tiny", plain=engine != "compiled")
    model = StaticModel(plain, lines=2, capacity=32) if engine == "static" else plain
    refuses(model, made_for(plain, plain.layers.projections))


def test_llama_cpp_refuses_it_too(llama_model: LanguageModel, torch_model: TorchModel) -> None:
    shapes = {projection: shape for projection, shape in torch_model.layers.projections.items() if projection[0] == 3}
    refuses(llama_model, made_for(torch_model, shapes))


def refuses(model: LanguageModel, good: Adapter) -> None:
    others = [model.open() for _ in range(2)]  # all lines of the static cache
    model.adapt([(good, 1.0)])
    with_it = others[0].feed([5, 6, 7])
    for adapters in ([(broken(good), 1.0)], [(good, 0.5), (broken(good), 0.5)]):
        with pytest.raises(AdapterError, match=r"numbers of .* not finite; train it anew with `polydraft learn`"):
            model.adapt(adapters)
    others[0].rewind(0)
    assert torch.equal(others[0].feed([5, 6, 7]), with_it)
    model.adapt([])
    others[0].rewind(0)
    assert not torch.equal(others[0].feed([5, 6, 7]), with_it)
    for sequence in others:
        sequence.close()


def test_an_adapter_that_breaks_the_numbers_later_is_named_by_its_store(tiny_folder: Callable[[str], Path]) -> None:
    model = hf.load(tiny_folder("compiled llama"), "tiny")
    model.adapt([(replace(made_for(model, model.layers.projections), store="me"), 1.0)])
    model.layers.adapt([(broken(made_for(model, model.layers.projections)), 1.0)])  # as if the first token passed
    with pytest.raises(NotFinite, match=r"with the adapter of me\. Train it anew .* or switch it off in My writing"):
        model.open().feed([5, 6, 7])


# ---------------------------------------------------------------- weights


@pytest.mark.parametrize("name", ["token_embd", "blk.0.attn_q", "blk.1.attn_v", "blk.0.attn_norm", "blk.1.ffn_down"])
def test_a_model_file_with_a_weight_that_is_no_number_is_refused(tmp_path: Path, name: str) -> None:
    """The bytes of the first scale, or number, are those of a NaN in half and in single precision."""
    made = tiny(Sizes(inner=72))  # so that `ffn_down` is in half precision
    tensor = made.tensors[f"{name}.weight"]
    tensor.data = b"\x00\x7e\xc0\x7f" + tensor.data[4:]
    path = tmp_path / "tiny.gguf"
    path.write_bytes(made.written())
    with pytest.raises(ModelFileError, match="not finite; download") as caught:
        load_model(str(path), "torch")
    assert "\n" not in str(caught.value)
