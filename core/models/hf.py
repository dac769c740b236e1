"""Loads models for the torch backend: with transformers, or from a GGUF file directly into compiled code.

The result is a `TorchModel`. transformers is imported only if its own layers or readers are needed, because
that takes seconds.
"""

from __future__ import annotations

import socket
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from logging import CRITICAL
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from huggingface_hub import constants as hub
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from core.errors import InputError, ModelFileError, ModelNotFound, PolydraftError, first_line
from core.models.coded import Weight, weight_of
from core.models.gguf_check import check
from core.models.gguf_file import forget, read
from core.models.hf_tokenizer import HFTokenizer, from_gguf, from_transformers
from core.models.llama import NativeLlama, why_not, why_not_family
from core.models.memory import return_freed
from core.models.module import embedding_weight
from core.models.native_gguf import read as native_gguf
from core.models.native_gguf import why_not_rounded
from core.models.torch_model import TorchModel

MAX_CONTEXT = 8192  # positions; more, even if the model's configuration allows them, would take gigabytes of cache
UNKNOWN_CONTEXT = 2048  # positions, if the configuration states none

# Exceptions of transformers and the file readers for a damaged or unsupported file.
_UNREADABLE = (
    OSError,
    ValueError,
    ArithmeticError,
    AssertionError,
    LookupError,
    MemoryError,
    TypeError,
    AttributeError,
    RuntimeError,
    ImportError,
    NotImplementedError,
    struct.error,
    SafetensorError,
    StrictDataclassError,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from core.models.module import Module


def load(
    source: Path | str, name: str, dtype: torch.dtype | None = None, plain: bool = False, rounded: bool = False
) -> TorchModel:
    """Loads a model.

    Args:
        source: a GGUF file, a Hugging Face directory, or the id of a model on the Hugging Face hub.
        name: the name that the user gave.
        dtype: of the weights on a CPU, float32 or bfloat16; None keeps a GGUF file's format, or else is float32. Models
            that do not run compiled stay at float32. With `plain`, also of the weights on a GPU, where None is 16 bits.
        plain: keep transformers' layers for the Llama family on a CPU instead of compiled ones; see `compiled`.
        rounded: compiled code rounds inputs to 8 bits where there are many of them. Only with neither of the others.
    Raises: InputError for `rounded` and a model that does not run so; ModelNotFound for an id that neither the hub nor
        the local cache has; ModelFileError for files that are incomplete, damaged, not in safetensors, or of an
        architecture that transformers cannot read.
    """
    if isinstance(source, Path) and source.is_file():
        check(read(source))
        straight = _load_straight(source, name, rounded) if dtype is None and not plain else None
        if straight is not None:
            return straight
    if rounded:
        why_not = (
            why_not_rounded(read(source)) if isinstance(source, Path) and source.is_file() else "it is no GGUF file"
        )
        raise InputError(
            f"Precision 'int8' given for {name}, which cannot be computed so: {why_not}; leave the precision out."
        )
    from transformers import AutoConfig

    with _quiet(), _read_once():
        options = _SAFELY
        if isinstance(source, str):
            reachable = _hub_reachable()
            options = options | {"local_files_only": not reachable}
            try:
                AutoConfig.from_pretrained(source, **options)
            except OSError as error:
                where = "on the Hugging Face hub" if reachable else "among the downloaded ones"
                fetch = "" if reachable else f"fetch it with `hf download {source}`, or "
                raise ModelNotFound(
                    f"No model {source!r} {where}; {fetch}give a path to a GGUF file or a directory, or the id of a "
                    f"public model (owner/name)."
                ) from error
            except _UNREADABLE as error:
                raise _unreadable(source, error) from error
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
        return model if plain else compiled(model, dtype, source if isinstance(source, Path) else None)


def _load_straight(path: Path, name: str, rounded: bool) -> TorchModel | None:
    """A GGUF file in its own format in compiled code, or None. It uses nothing of transformers that takes seconds
    to import."""
    file = read(path)
    if rounded and why_not_rounded(file):
        return None
    module = native_gguf(file, rounded)
    if module is None:
        return None
    with _reading(path, "the tokenizer of "):
        tokenizer = from_gguf(file.fields, module.embeddings.shape[0])
    if tokenizer is None:
        return None
    forget()
    return_freed()  # the C library would keep what rearranging the weights took, which is as much as the file
    return TorchModel(module, tokenizer, name, _context_length(module))


def compiled(model: TorchModel, dtype: torch.dtype | None = None, source: Path | None = None) -> TorchModel:
    """The same model with its layers in compiled code; if that is impossible, the model unchanged.

    Without a `dtype`, few-bit weights of `source` are kept; it must be the file that the model was loaded from.
    `notice` of the returned model reports why compiled code is missing where it was possible.
    """
    module = model.layers.module
    assert not model.layers.compiled
    if why_not_family(module):
        return model
    if reason := why_not(module):
        model.notice = f"Drafts take about six times as long as with compiled code on this CPU: {reason}."
        return model
    stored = _stored(source) if source and source.is_file() and dtype is None else None
    made = NativeLlama.of(module, dtype or torch.float32, stored)
    return TorchModel(made, model.tokenizer, model.name, model.context_length)


def _stored(path: Path) -> Callable[[str], Weight | None]:
    """The tensor of this name in a GGUF file, in its own format."""
    tensors = read(path).tensors
    return lambda name: weight_of(tensors[name]) if name in tensors else None


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


def _load_module(
    source: Path | str, options: dict[str, Any], dtype: torch.dtype | None
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The weights on the GPU in 16 bits if there is one, else on the CPU in float32; in `dtype` if it is given."""
    from transformers import AutoModelForCausalLM, GgufConfig

    device, usual = torch.device("cpu"), torch.float32
    if torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
        usual = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    options = options | {"dtype": dtype or usual, "output_loading_info": True}
    if isinstance(source, Path) and source.is_file():
        options |= {"gguf_file": source.name, "quantization_config": GgufConfig(dequantize=True)}
        source = source.parent
    else:
        options["use_safetensors"] = True
    loaded: Any = AutoModelForCausalLM.from_pretrained(str(source), **options)
    module, info = loaded
    return module.to(device), info


def _load_tokenizer(
    source: Path | str, options: dict[str, Any], module: PreTrainedModel, vocab_size: int
) -> HFTokenizer:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if isinstance(source, Path) and source.is_file():
        tokenizer = from_gguf(read(source).fields, vocab_size)
        if tokenizer is not None:
            return tokenizer
        options = options | {"gguf_file": source.name}
        source = source.parent
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
    from transformers import modeling_gguf_pytorch_utils
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub_bars = not hub_utils.are_progress_bars_disabled()
    gguf_reader: Any = modeling_gguf_pytorch_utils
    gguf_bar = gguf_reader.tqdm  # it ignores every switch
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()
    hub_utils.disable_progress_bars()
    gguf_reader.tqdm = lambda tensors, **_: tensors
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        gguf_reader.tqdm = gguf_bar
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
        if hub_bars:
            hub_utils.enable_progress_bars()


@contextmanager
def _read_once() -> Iterator[None]:
    """Caches two steps of loading a GGUF file: transformers parses it twice, and builds the table of tensor names for
    every module, which takes more than half of the time."""
    import gguf
    import numpy as np

    reader, name_map = gguf.GGUFReader, gguf.get_tensor_name_map

    class PlainReader(reader):
        """Slices a plain array. The reader makes a million slices, and those of a `memmap` take a third of the time."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value.view(np.ndarray) if name == "data" else value)

    library: Any = gguf
    library.GGUFReader = cache(PlainReader)
    library.get_tensor_name_map = cache(name_map)
    try:
        yield
    finally:
        library.GGUFReader, library.get_tensor_name_map = reader, name_map
        forget()


@contextmanager
def _reading(source: Path | str, part: str = "") -> Iterator[None]:
    """Turns any error of a library that reads an unknown file into one sentence. BaseException: `tokenizers` raises
    Exception itself, and its panics are not subclasses of it."""
    try:
        yield
    except (PolydraftError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise _unreadable(source, error, part) from error


def _unreadable(source: Path | str, error: BaseException, part: str = "") -> ModelFileError:
    expected = "a directory with safetensors weights"
    if isinstance(source, Path) and source.is_file():
        expected = "a complete GGUF file"
    return ModelFileError(
        f"Cannot read {part}{source} ({first_line(error)}); give {expected} of an architecture that transformers knows."
    )
