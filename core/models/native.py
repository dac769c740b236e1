"""The Llama family on a CPU at the speed of its memory: a whole pass in one call of compiled code, `native.cpp`.

The code is compiled when it is first needed, in about three seconds, for exactly this processor, and kept in the user's
cache; `why_not` says what is missing where that fails. It takes the place of transformers' module inside `TorchModel`
and is called like it, with a cache that has `block`.

In float32 the logits are the module's but for the order of additions. In bfloat16 half as many bytes are read; only
weights are rounded: what lies between them, the cache too, stays float32.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from ctypes import POINTER, Structure, c_double, c_int64, c_void_p
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import platformdirs
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from core.errors import ContextFull
from core.models import lean

SOURCE = Path(__file__).with_name("native.cpp")
OPTIONS = ("-std=c++17", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")
COMPILERS = ("c++", "g++", "clang++")
COMPILE_SECONDS = 120
WIDEST = 256  # of a head


class _Matrix(Structure):
    _fields_ = [("panels", c_void_p), ("bias", c_void_p), ("out", c_int64), ("inputs", c_int64)]


class _Layer(Structure):
    _fields_ = [("qkv", _Matrix), ("out", _Matrix), ("gate_up", _Matrix), ("down", _Matrix)]


class _Model(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("layers", "dim", "heads", "key_heads", "width", "inner", "bfloat16")),
        ("eps", c_double),
        ("layer", POINTER(_Layer)),
        ("head", _Matrix),
    ]


class _Pass(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("lines", "n", "past", "threads")),
        *((name, c_void_p) for name in ("h", "cos", "sin", "seen", "cache")),
        *((name, c_int64) for name in ("of_plane", "of_line", "of_head")),
        ("kept", c_void_p),
        ("kept_count", c_int64),
        ("logits", c_void_p),
        ("watched", c_void_p),
        ("watched_count", c_int64),
        ("features", c_void_p),
    ]


class CannotCompile(Exception):
    """In one clause: what is missing."""


@cache
def library() -> ctypes.CDLL:
    """The compiled code, from the user's cache where it was compiled before. Raises CannotCompile."""
    compiler = shlex.split(os.environ.get("CXX", "")) or list(filter(None, map(shutil.which, COMPILERS)))[:1]
    if not compiler:
        raise CannotCompile("no C++ compiler was found (Debian, Ubuntu: apt-get install g++)")
    # What the compiler says of itself and of this processor: another one, and it is compiled anew.
    target = _run(*compiler, *OPTIONS, "-dM", "-E", "-x", "c++", os.devnull)
    key = hashlib.sha256("\n".join([SOURCE.read_text(), *OPTIONS, target]).encode()).hexdigest()[:16]
    folder = platformdirs.user_cache_path("polydraft") / "native"
    path = folder / f"{key}.so"
    try:
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as made:
                _run(*compiler, *OPTIONS, str(SOURCE), "-o", f"{made}/native.so")
                Path(made, "native.so").rename(path)
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise CannotCompile(f"its compiled code cannot be kept in {folder}, or not loaded ({error})") from error
    found.polydraft_forward.argtypes = [POINTER(_Model), POINTER(_Pass)]
    return found


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotCompile(f"the C++ compiler does not work ({error})") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it says nothing"])[0]
        raise CannotCompile(f"{command[0]} cannot compile it ({said})")
    return done.stdout


def why_not(module: PreTrainedModel) -> str:
    """Why `NativeLlama` cannot stand in for this module here, or "" (which may compile the code first)."""
    reason = lean.why_not_llama(module)
    if reason:
        return reason
    width = lean.head_width(module.config)
    try:
        lanes = library().polydraft_lanes()
    except CannotCompile as error:
        return str(error)
    return (
        f"its heads are {width} wide, no multiple of {lanes} up to {WIDEST}" if width % lanes or width > WIDEST else ""
    )


class NativeLlama(nn.Module):
    """A causal language model with the weights of a transformers module, which may be dropped afterwards.

    Attributes:
        config: transformers' configuration of the model.
        dtype: float32, of embeddings and cache.
        planes: (heads, width) of each layer's keys and values.
    """

    dtype = torch.float32

    def __init__(self, module: PreTrainedModel, dtype: torch.dtype) -> None:
        """Pack the weights of a float32 module on the CPU as float32 or bfloat16; `why_not(module)` must be ""."""
        super().__init__()
        self._library = library()
        self._panel = self._library.polydraft_panel()
        self._held: list[Tensor] = []  # what the structures point to
        config: Any = module.config
        self.config, self.generation_config = config, module.generation_config
        body: Any = module.model
        self.embed_tokens = body.embed_tokens
        self._rotary = body.rotary_emb
        width, heads = lean.head_width(config), config.num_key_value_heads
        self.planes = [(heads, width)] * (2 * len(body.layers))
        layers = (_Layer * len(body.layers))(*(self._layer(layer, dtype) for layer in body.layers))
        output: Any = module.get_output_embeddings()
        weight, bias = lean.weight_and_bias(output)
        norm = body.norm.weight.detach()
        self._model = _Model(
            layers=len(body.layers),
            dim=config.hidden_size,
            heads=config.num_attention_heads,
            key_heads=heads,
            width=width,
            inner=config.intermediate_size,
            bfloat16=dtype == torch.bfloat16,
            eps=config.rms_norm_eps,
            layer=layers,
            head=self._matrix(weight * norm, bias, dtype),
        )

    @property
    def device(self) -> torch.device:
        return self.embed_tokens.weight.device

    def get_input_embeddings(self) -> nn.Module:
        return self.embed_tokens

    def forward(
        self,
        input_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        attention_mask: Tensor | dict[str, Tensor] | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        logits_to_keep: int | Tensor = 0,
        use_cache: bool = True,
        return_dict: bool = True,
        feature_layers: tuple[int, ...] = (),
    ) -> SimpleNamespace:
        """Logits (B, kept, V) and features (B, n, W) after the inputs; arguments as `LeanLlama.forward` has them.

        Args:
            past_key_values: a cache whose `block` is a view (planes, B, heads, C, w) of what it holds of these lines,
                with room for n more columns behind the past.
        Raises: ContextFull where there is no memory for what lies between.
        """
        # A copy either way: what the residual stream is added up in.
        h = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds.to(torch.float32, copy=True)
        h = h.contiguous()  # (B, n, D)
        B, n, D = h.shape
        past, block = past_key_values.get_seq_length(), past_key_values.block
        if position_ids is None:
            position_ids = torch.arange(past, past + n)[None]
        cos, sin = (x.expand(B, n, -1).contiguous() for x in self._rotary(h, position_ids=position_ids))  # (B, n, w)
        # Without a mask each input sees what is up to itself, which the compiled code knows.
        seen = None if attention_mask is None else lean.mask_of(attention_mask, past, n)
        if seen is not None:
            seen = (seen if seen.dtype == torch.bool else seen == 0).expand(B, 1, n, past + n).contiguous()
        places = torch.arange(n)
        places = places[-logits_to_keep:] if isinstance(logits_to_keep, int) else places[logits_to_keep]
        kept = (torch.arange(B)[:, None] * n + places).contiguous()  # (B, kept)
        logits = torch.empty(*kept.shape, self._model.head.out)
        watched = torch.tensor(sorted(feature_layers))
        features = torch.empty(B, n, len(feature_layers) * D)
        failed = self._library.polydraft_forward(
            self._model,
            _Pass(
                lines=B,
                n=n,
                past=past,
                threads=torch.get_num_threads(),
                h=h.data_ptr(),
                cos=cos.data_ptr(),
                sin=sin.data_ptr(),
                seen=None if seen is None else seen.data_ptr(),
                cache=block.data_ptr(),
                of_plane=block.stride(0),
                of_line=block.stride(1),
                of_head=block.stride(2),
                kept=kept.data_ptr(),
                kept_count=kept.numel(),
                logits=logits.data_ptr(),
                watched=watched.data_ptr(),
                watched_count=len(watched),
                features=features.data_ptr(),
            ),
        )
        if failed:
            raise ContextFull("The memory is full; close sequences or shorten the text.")
        return SimpleNamespace(logits=logits, features=features)

    def _layer(self, layer: Any, dtype: torch.dtype) -> _Layer:
        """The norms' weights stand in the maps that follow them: W (g · x) = (W g) x."""
        attention, mlp = layer.self_attn, layer.mlp
        before, between = layer.input_layernorm.weight.detach(), layer.post_attention_layernorm.weight.detach()
        weights, biases = zip(
            *map(lean.weight_and_bias, (attention.q_proj, attention.k_proj, attention.v_proj)), strict=True
        )
        qkv = torch.cat(weights), None if biases[0] is None else torch.cat(biases)
        # A panel of the gate, then the same one of up, so that whoever has the one has the other.
        weights, biases = zip(*map(lean.weight_and_bias, (mlp.gate_proj, mlp.up_proj)), strict=True)
        joined = torch.stack([self._panels(w) for w in weights], 1)  # (panels, 2, panel, D)
        added = None if biases[0] is None else torch.stack([self._panels(b) for b in biases], 1).flatten()
        return _Layer(
            qkv=self._matrix(qkv[0] * before, qkv[1], dtype),
            out=self._matrix(*lean.weight_and_bias(attention.o_proj), dtype),
            gate_up=self._matrix(joined.flatten(0, 2) * between, added, dtype),
            down=self._matrix(*lean.weight_and_bias(mlp.down_proj), dtype),
        )

    def _panels(self, x: Tensor) -> Tensor:
        """(out, …) -> (panels, panel, …), filled up with zeros."""
        padded = F.pad(x, (0, 0) * (x.ndim - 1) + (0, -len(x) % self._panel))
        return padded.unflatten(0, (-1, self._panel))

    def _matrix(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> _Matrix:
        """weight (out, in), bias (out,)."""
        panels = self._panels(weight).transpose(1, 2).to(dtype).contiguous()  # (panels, in, panel)
        self._held.append(panels)
        if bias is not None:
            bias = bias.detach().to(torch.float32).contiguous()
            self._held.append(bias)
        return _Matrix(panels.data_ptr(), None if bias is None else bias.data_ptr(), *weight.shape)
