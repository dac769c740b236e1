"""What people paste to name a model is read as what they mean, or gets a sentence with the form that is expected."""

from __future__ import annotations

import pytest
from huggingface_hub import constants

from core.errors import InputError
from core.hub.names import Wanted, wanted

REPO = "unsloth/Qwen3-0.6B-GGUF"
FILE = "Qwen3-0.6B-Q8_0.gguf"


@pytest.fixture(autouse=True)
def mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "https://mirror.example:8443/hub")


@pytest.mark.parametrize(
    ("pasted", "meant"),
    [
        (REPO, Wanted(REPO)),
        (f" '{REPO}/' ", Wanted(REPO)),
        (f"{REPO}:Q8_0", Wanted(REPO, "Q8_0")),
        (f"{REPO}:q4_k_m", Wanted(REPO, "Q4_K_M")),
        (f"{REPO}:UD-Q4_K_XL", Wanted(REPO, "UD-Q4_K_XL")),
        (f"{REPO}:ud-q4_k_xl", Wanted(REPO, "UD-Q4_K_XL")),
        (f"{REPO}:latest", Wanted(REPO)),
        (f"hf.co/{REPO}:Q8_0", Wanted(REPO, "Q8_0")),
        (f"https://hf.co/{REPO}:q8_0", Wanted(REPO, "Q8_0")),
        (f"huggingface.co/{REPO}", Wanted(REPO)),
        (f"https://huggingface.co/{REPO}", Wanted(REPO)),
        (f"HTTPS://HuggingFace.co/{REPO}?library=llama-cpp#usage", Wanted(REPO)),
        (f"https://huggingface.co/{REPO}/tree/main", Wanted(REPO)),
        (f"https://huggingface.co/{REPO}/tree/v2/Q8_0", Wanted(REPO, revision="v2")),
        (f"https://huggingface.co/{REPO}/discussions/3", Wanted(REPO)),
        (f"https://huggingface.co/{REPO}/blob/main/{FILE}", Wanted(REPO, file=FILE)),
        (f"https://huggingface.co/{REPO}/resolve/main/{FILE}?download=true", Wanted(REPO, file=FILE)),
        (f"https://huggingface.co/{REPO}/resolve/refs%2Fpr%2F1/a/{FILE}", Wanted(REPO, "", f"a/{FILE}", "refs/pr/1")),
        (f"https://huggingface.co/{REPO}?show_file_info={FILE}", Wanted(REPO, file=FILE)),
        (f"hf://{REPO}/{FILE}", Wanted(REPO, file=FILE)),
        (f"{REPO}:{FILE}", Wanted(REPO, file=FILE)),
        (f"https://mirror.example:8443/{REPO}", Wanted(REPO)),
    ],
)
def test_what_people_paste_is_read(pasted: str, meant: Wanted) -> None:
    assert wanted(pasted) == meant


@pytest.mark.parametrize(
    ("pasted", "said"),
    [
        ("", "OWNER/REPO"),
        ("qwen3:0.6b", "OWNER/REPO"),
        ("../..", "OWNER/REPO"),
        ("a/b c", "OWNER/REPO"),
        ("a/b:Q8 0", "OWNER/REPO"),
        ("a/\x1b[31mb", r"\\x1b"),
        ("https://huggingface.co/unsloth", "OWNER/REPO"),
        ("https://example.com/a/b", "address of another site"),
        ("https://huggingface.co/datasets/a/b", "a data set; a model is expected"),
        (f"https://huggingface.co/{REPO}/blob/main/README.md", f"type `polydraft models get {REPO}`"),
    ],
)
def test_what_is_no_name_gets_a_sentence_with_what_is_expected(pasted: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        wanted(pasted)
    assert str(error.value).isprintable()
