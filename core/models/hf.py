"""Loads models for the torch backend: folders with transformers, GGUF files with our own readers.

The result is a `TorchModel`. transformers is imported only if its own layers or readers are needed, because
that takes seconds.
"""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from logging import CRITICAL
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from huggingface_hub import constants as hub

from core.errors import InputError, ModelFileError, ModelNotFound, PolydraftError, first_line
from core.memory import return_freed
from core.models.gguf_check import check
from core.models.gguf_file import forget, read
from core.models.hf_tokenizer import HFTokenizer, from_gguf, from_transformers
from core.models.llama import NativeLlama, why_not, why_not_family
from core.models.module import embedding_weight
from core.models.native_gguf import read as native_gguf
from core.models.native_gguf import why_not as why_not_file
from core.models.native_gguf import why_not_read, why_not_rounded
from core.models.torch_model import TorchModel

MAX_CONTEXT = 8192  # positions; more, even if the model's configuration allows them, would take gigabytes of cache
UNKNOWN_CONTEXT = 2048  # positions, if the configuration states none

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from core.models.module import Module


def load(
    source: Path | str, name: str, dtype: torch.dtype | None = None, plain: bool = False, rounded: bool | None = False
) -> TorchModel:
    """Loads a model.

    Args:
        source: a GGUF file, a Hugging Face directory, or the id of a model on the Hugging Face hub.
        name: the name that the user gave.
        dtype: of the weights on a CPU, float32 or bfloat16; None keeps a GGUF file's format, or else is float32. Models
            that do not run compiled stay at float32. With `plain`, also of the weights on a GPU, where None is 16 bits.
        plain: keep transformers' layers for the Llama family on a CPU instead of compiled ones; see `compiled`.
        rounded: compiled code rounds inputs of products to 8 bits, see `Compiled`; None rounds them for the models that
            run so. Only with neither of the others.
    Raises: InputError for `rounded` and a model that does not run so; ModelNotFound for an id that neither the hub nor
        the local cache has; ModelFileError for files that are incomplete, damaged, not in safetensors, or of an
        architecture that transformers cannot read.
    """
    if isinstance(source, Path) and source.is_file():
        return _load_gguf(source, name, dtype, plain, rounded)
    if rounded:
        raise _not_rounded(name, "it is no GGUF file")
    from transformers import AutoConfig

    with _quiet():
        options = _SAFELY
        if isinstance(source, str):
            reachable = _hub_reachable()
            options = options | {"local_files_only": not reachable}
            with _reading(source):
                try:
                    AutoConfig.from_pretrained(source, **options)
                except OSError as error:
                    where = "on the Hugging Face hub" if reachable else "among the downloaded ones"
                    fetch = "" if reachable else f"fetch it with `hf download {source}`, or "
                    raise ModelNotFound(
                        f"No model {source!r} {where}; {fetch}give a path to a GGUF file or a directory, or the id of "
                        "a public model (owner/name)."
                    ) from error
        elif source.is_dir() and not (source / "config.json").is_file():
            raise ModelFileError(f"{source} has no config.json; give the directory of a Hugging Face model.")
        with _reading(source):
            module, info = _load_module(source, options, dtype if plain else None)
        if info["missing_keys"]:
            missing = sorted(info["missing_keys"])
            raise ModelFileError(
                f"{source} lacks {len(missing)} of the model's weights ({missing[0]}, …); get a complete copy."
            )
        vocab_size = embedding_weight(module).shape[0]
        with _reading(source, "the tokenizer of "):
            tokenizer = _load_tokenizer(source, options, module, vocab_size)
        with _reading(source):  # inconsistent sizes cause errors when the layers first run
            model = TorchModel(module, tokenizer, name, _context_length(module))
        return model if plain else compiled(model, dtype)


def _load_gguf(path: Path, name: str, dtype: torch.dtype | None, plain: bool, rounded: bool | None) -> TorchModel:
    """A GGUF file in compiled code, which uses nothing of transformers that takes seconds to import; or with `plain`,
    on a GPU, and where compiled code does not run, in transformers' layers."""
    file = read(path)
    check(file)
    if rounded is not False:
        reason = why_not_rounded(file)
        if rounded and reason:
            raise _not_rounded(name, reason)
        rounded = not reason
    if reason := why_not_read(file):
        raise ModelFileError(f"{path} can run in llama.cpp alone ({reason}); use --backend llama.cpp.")
    module: Module | None = None if plain else native_gguf(file, dtype, rounded)
    notice = None
    if module is None:
        with _quiet(), _reading(path):
            from core.models.gguf_module import read as in_transformers_layers

            device, usual = _usual()
            module = in_transformers_layers(file, device, (dtype if plain else None) or usual)
        if not plain and not torch.cuda.is_available():
            notice = _slow(why_not_file(file))
    with _reading(path, "the tokenizer of "):
        tokenizer = from_gguf(file.fields, module.config.vocab_size)
    if tokenizer is None:
        raise ModelFileError(
            f"{path} has a tokenizer whose parts do not fit together: merges of tokens, or all bytes and scores, are "
            "expected; download it again."
        )
    forget()
    return_freed()  # the C library would keep what rearranging the weights took, which is as much as the file
    with _reading(path):
        model = TorchModel(module, tokenizer, name, _context_length(module))
    model.notice, model.languages = notice, file.languages
    return model


def _not_rounded(name: str, reason: str) -> InputError:
    return InputError(
        f"Precision 'int8' given for {name}, which cannot be computed so: {reason}; leave the precision out."
    )


def _slow(reason: str) -> str:
    return f"Drafts take about six times as long as with compiled code on this CPU: {reason}."


def compiled(model: TorchModel, dtype: torch.dtype | None = None) -> TorchModel:
    """The same model with its layers in compiled code; if that is impossible, the model unchanged.

    `notice` of the returned model reports why compiled code is missing where it was possible.
    """
    module = model.layers.module
    assert not model.layers.compiled
    if why_not_family(module):
        return model
    if reason := why_not(module):
        model.notice = _slow(reason)
        return model
    layers = NativeLlama.of(module, dtype or torch.float32)
    return TorchModel(layers, model.tokenizer, model.name, model.context_length)


# Never run code that comes with a model, never unpickle its weights.
_SAFELY: dict[str, Any] = {"trust_remote_code": False}


def _hub_reachable() -> bool:
    """Whether the hub can be reached: without a network, transformers retries for 23 s."""
    if hub.HF_HUB_OFFLINE:
        return False
    if getproxies():
        return True  # the proxy decides
    address = urlsplit(hub.ENDPOINT)
    try:
        socket.create_connection((address.hostname or "", address.port or 443), timeout=3).close()
    except OSError:
        return False
    return True


def _usual() -> tuple[torch.device, torch.dtype]:
    """Where transformers' layers compute, and in which type: on the GPU in 16 bits if there is one, else in float32."""
    if not torch.cuda.is_available():
        return torch.device("cpu"), torch.float32
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return torch.device("cuda", torch.cuda.current_device()), dtype


def _load_module(
    source: Path | str, options: dict[str, Any], dtype: torch.dtype | None
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The weights where `_usual` says; in `dtype` if it is given."""
    from transformers import AutoModelForCausalLM

    device, usual = _usual()
    options = options | {"dtype": dtype or usual, "output_loading_info": True, "use_safetensors": True}
    loaded: Any = AutoModelForCausalLM.from_pretrained(str(source), **options)
    module, info = loaded
    return module.to(device), info


def _load_tokenizer(
    source: Path | str, options: dict[str, Any], module: PreTrainedModel, vocab_size: int
) -> HFTokenizer:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    tokenizer = AutoTokenizer.from_pretrained(str(source), **options)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ModelFileError(f"{source} has no tokenizer.json, which we read; choose a model that has one.")
    eos_ids: list[int] = []
    for config in (module.config.get_text_config(), module.generation_config):
        stated = getattr(config, "eos_token_id", None)
        eos_ids += stated if isinstance(stated, list) else [] if stated is None else [stated]
    return from_transformers(tokenizer, vocab_size, eos_ids)


def _context_length(module: Module) -> int:
    config = module.config.get_text_config()
    for key in ("max_position_embeddings", "max_seq_len", "seq_length"):
        stated = getattr(config, key, None)
        if isinstance(stated, int) and stated > 0:
            return min(stated, MAX_CONTEXT)
    return UNKNOWN_CONTEXT


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides transformers' progress bars and advice, which are meant for programmers."""
    from huggingface_hub import utils as hub_utils
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub_bars = not hub_utils.are_progress_bars_disabled()
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()
    hub_utils.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
        if hub_bars:
            hub_utils.enable_progress_bars()


@contextmanager
def _reading(source: Path | str, part: str = "") -> Iterator[None]:
    """Turns any error of a library that reads an unknown file into one sentence. BaseException: `tokenizers` raises
    Exception itself, and its panics are not subclasses of it."""
    try:
        yield
    except (PolydraftError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        expected = "a directory with safetensors weights of an architecture that transformers knows"
        if isinstance(source, Path) and source.is_file():
            expected = "a complete GGUF file"
        raise ModelFileError(f"Cannot read {part}{source} ({first_line(error)}); give {expected}.") from error
