"""The llama.cpp backend: any GGUF causal model through llama-cpp-python's low-level interface.

One context with one unified cache serves every sequence: a fork is a second sequence id on the same cells and
copies nothing. A pass is one `llama_batch`, of tokens, or of embeddings if any row is a mixture; feeding
a token's embedding gives the token's logits. In a tree of tokens, each leaf has its own sequence id, which the
tokens on its path share. This module does not import transformers.

Models with a recurrent memory have one state for each sequence id, which cannot be cut back to an earlier position. So
after going back, and in a fork, the next pass reads the whole text again.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Sequence as Ordered
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp  # pyright: ignore[reportMissingImports]
import numpy as np
import torch
from torch import Tensor

from core.errors import ContextFull, InputError, ModelFileError
from core.files import scratch
from core.models import gguf_check, gguf_file, llamacpp_adapter
from core.models.adapter import Adapter, AdapterError
from core.models.base import LanguageModel, Row, Sequence, as_embeddings, depths, is_chain, path_to
from core.models.embeddings import Embeddings
from core.models.gguf_file import GGUFFile
from core.models.memory import CACHE_SHARE, free_bytes
from core.models.processor import cores
from core.models.rows import result, wanted
from core.models.tokenizer import CONTROL, SURROGATE, UNKNOWN, UNUSED, USER_DEFINED, Tokenizer

MAX_CELLS = 8192  # positions in the cache, all sequences together; fewer where memory is short
LEAST_CELLS = 512
MAX_SEQUENCES = 128  # sequence ids; llama.cpp itself allows 256
BATCH = 512  # inputs per native call; longer rows are cut
STATES = 24  # sequence ids of a model with a recurrent memory, as each takes the memory of a state

CANNOT_GO_BACK = (
    "The memory of {} cannot be cut back: the whole text is read again at every key, and more often for several "
    "drafts, so choose one draft, or another model."
)

# Its ctypes annotations name pointer classes that ctypes itself never creates; so no types.
lib: Any = llama_cpp.llama_cpp


@lib.llama_log_callback
def _silent(level: int, text: bytes, user_data: object) -> None:
    """Silences llama.cpp's own log; our errors report the relevant problems."""


def load(path: Path, name: str) -> LlamaCppModel:
    """Opens the model in a GGUF file. Raises ModelFileError if it cannot be read."""
    file = gguf_file.read(path)
    gguf_check.check(file)
    lib.llama_log_set(_silent, ctypes.c_void_p(0))
    lib.llama_backend_init()
    return LlamaCppModel(file, name)


class _Weights:
    """llama.cpp's model. Its memory is freed when neither our model nor a tokenizer refers to it any more: threads that
    add to personal stores may tokenise after the model was closed."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        weakref.finalize(self, lib.llama_model_free, pointer).atexit = False


class LlamaCppTokenizer(Tokenizer):
    """The tokenizer in a GGUF file, run by llama.cpp. It works after the model is closed, too."""

    def __init__(self, weights: _Weights, names: list[str], types: list[int]) -> None:
        self._weights = weights
        self._vocab = vocab = lib.llama_model_get_vocab(weights.pointer)
        n = lib.llama_vocab_n_tokens(vocab)
        names = names + [""] * (n - len(names))
        types = types + [UNUSED] * (n - len(types))
        special = [i for i, t in enumerate(types) if t in (UNKNOWN, CONTROL, UNUSED)]
        eos, eot, bos = lib.llama_vocab_eos(vocab), lib.llama_vocab_eot(vocab), lib.llama_vocab_bos(vocab)
        super().__init__(
            [self._piece(i) for i in range(n)],
            special,
            names={names[i]: i for i in special},
            eos_ids=[eos, eot],
            bos_id=bos if bos >= 0 else None,
            start_ids=[bos] if lib.llama_vocab_get_add_bos(vocab) and bos >= 0 else [],
        )
        self.special_names = {names[i]: i for i, t in enumerate(types) if t in (CONTROL, USER_DEFINED)}

    def encode(self, text: str) -> list[int]:
        data = SURROGATE.sub("\ufffd", text).encode("utf-8")
        room = len(data) + 8
        out = (lib.llama_token * room)()
        n = lib.llama_tokenize(self._vocab, data, len(data), out, room, False, False)
        return out[:n] if n > 0 else []

    def _piece(self, token: int) -> bytes:
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            n = lib.llama_token_to_piece(self._vocab, token, buffer, room, 0, False)
            if n >= 0:
                return buffer.raw[:n]
            room = -n


class LlamaCppModel(LanguageModel):
    """A GGUF model in llama.cpp; see `LanguageModel`."""

    backend = "llama.cpp"
    device = "cpu"

    def __init__(self, file: GGUFFile, name: str) -> None:
        self.name, self.languages = name, file.languages
        path, table = file.path, file.tensors.get("token_embd.weight")
        names, types = (file.fields.get(f"tokenizer.ggml.{f}") for f in ("tokens", "token_type"))
        if table is None or not isinstance(names, list):
            raise ModelFileError(
                f"{path} is a GGUF file but contains no language model (no token embeddings or no tokenizer); "
                "give the main model file."
            )
        # Exactly the values in the graph: feeding a row of it is equivalent to feeding the token.
        self._table = Embeddings.of_gguf(table)
        self.vocab_size, self.dim = self._table.shape

        params = lib.llama_model_default_params()
        # The AMX buffer type of the default build dies with SIGSEGV on CPUs that have AMX.
        params.use_extra_bufts = False
        pointer = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not pointer:
            raise ModelFileError(
                f"llama.cpp cannot read {path}: it is damaged or of an architecture that this version lacks; "
                "download it again or choose another model."
            )
        weights = _Weights(pointer)
        sizes = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(pointer)), lib.llama_model_n_embd(pointer)
        if sizes != self._table.shape:  # native code receives arrays of these sizes
            raise ModelFileError(
                f"{path} has token embeddings of the shape {self._table.shape}, where llama.cpp finds "
                f"{sizes}; download it again."
            )
        self.context_length = min(MAX_CELLS, lib.llama_model_n_ctx_train(pointer), _affordable(pointer))
        params = lib.llama_context_default_params()
        params.n_ctx = self.context_length
        params.n_batch = params.n_ubatch = BATCH
        self.recurrent = bool(lib.llama_model_is_recurrent(pointer) or lib.llama_model_is_hybrid(pointer))
        self.takes_trees = not self.recurrent
        self._ids = STATES if self.recurrent else MAX_SEQUENCES
        params.n_seq_max = self._ids
        params.kv_unified = True  # forks share cells
        params.n_threads = params.n_threads_batch = cores()
        self._context = lib.llama_init_from_model(pointer, params)
        if not self._context:
            raise ModelFileError(f"llama.cpp has no memory for a context of {self.context_length} tokens of {name}.")
        self._memory = lib.llama_get_memory(self._context)
        self._weights: _Weights | None = weights
        self.tokenizer = LlamaCppTokenizer(weights, names, types if isinstance(types, list) else [])
        self._projections = llamacpp_adapter.projections(file)
        self._layout = str(file.architecture), llamacpp_adapter.head_width(file)
        self._adapters: dict[int, tuple[Adapter, Any]] = {}  # by identity, with llama.cpp's pointers
        self._free_ids = list(range(self._ids - 1, -1, -1))
        self._dropped: deque[int] = deque()  # ids of sequences that were never closed, to be released
        self._token_batch = lib.llama_batch_init(BATCH, 0, MAX_SEQUENCES)
        # A rotation by places in a text and in images (M-RoPE) reads all four of an embedding, and of a token only one.
        several = (lib.LLAMA_ROPE_TYPE_MROPE, lib.LLAMA_ROPE_TYPE_IMROPE)
        self._places = 4 if lib.llama_model_rope_type(pointer) in several else 1
        self._embedding_batch = lib.llama_batch_init(BATCH * self._places, self.dim, MAX_SEQUENCES)
        if self.recurrent:
            self.notice = CANNOT_GO_BACK.format(name)

    def open(self) -> LlamaCppSequence:
        return LlamaCppSequence(self, self._take_id())

    def close(self) -> None:
        if self._context:
            lib.llama_batch_free(self._token_batch)
            lib.llama_batch_free(self._embedding_batch)
            lib.llama_free(self._context)
            self._context = self._weights = None

    def _adapt(self, adapters: Ordered[tuple[Adapter, float]]) -> None:
        if not self._projections:
            super()._adapt(adapters)  # refuses them
            return
        self._check_adapters(adapters, self._projections)
        for adapter, _ in adapters:
            if id(adapter) not in self._adapters:
                self._adapters[id(adapter)] = adapter, self._loaded(adapter)
        used = [id(adapter) for adapter, _ in adapters]
        pointers = (lib.llama_adapter_lora_p_ctypes * len(used))(*(self._adapters[key][1] for key in used))
        strengths = (ctypes.c_float * len(used))(*(strength for _, strength in adapters))
        if lib.llama_set_adapters_lora(self._context, pointers, len(used), strengths):
            raise AdapterError(f"llama.cpp cannot use these {len(used)} adapters together; switch some stores off.")
        for key in self._adapters.keys() - set(used):
            lib.llama_adapter_lora_free(self._adapters.pop(key)[1])

    def _loaded(self, adapter: Adapter) -> Any:
        """llama.cpp's own copy; it reads only files, so a private one exists for a moment, then zeros, then none."""
        assert self._weights is not None
        try:
            with scratch() as folder:
                path = folder / "adapter.gguf"
                llamacpp_adapter.write(adapter, *self._layout, path)
                pointer = lib.llama_adapter_lora_init(self._weights.pointer, os.fsencode(path))
                path.write_bytes(bytes(path.stat().st_size))
        except OSError as error:
            where = error.filename or "A temporary file"
            raise AdapterError(f"{where} cannot be written for llama.cpp: {error.strerror or error}.") from error
        if not pointer:
            raise AdapterError(f"llama.cpp cannot read the adapter for {self.name}; use --backend torch.")
        return pointer

    def _take_id(self) -> int:
        self._collect()
        if not self._free_ids:
            raise ContextFull(f"All {self._ids} sequences of the cache are in use; close one first.")
        return self._free_ids.pop()

    def _collect(self) -> None:
        """Reuses the ids of dropped sequences."""
        while self._dropped:
            self._give_id(self._dropped.popleft())

    def _give_id(self, id: int) -> None:
        lib.llama_memory_seq_rm(self._memory, id, -1, -1)
        self._free_ids.append(id)

    def _forward(self, rows: list[Row]) -> list[Tensor]:
        if not self._context:
            raise InputError(f"{self.name} is closed; load it again.")
        self._collect()
        for row in rows:
            self._read_again(row.sequence)
        positions = self._positions(rows)
        mixed = any(isinstance(row.inputs, Tensor) for row in rows)
        values = (
            np.concatenate([as_embeddings(self, row.inputs) for row in rows])
            if mixed
            else [token for row in rows for token in row.inputs]
        )
        entries = [(r, i) for r, row in enumerate(rows) for i in range(len(row.inputs))]
        logits: list[list[Tensor]] = [[] for _ in rows]
        for at in range(0, len(entries), BATCH):
            part = entries[at : at + BATCH]
            self._decode(rows, part, values[at : at + BATCH], mixed, positions)
            for b, (r, i) in enumerate(part):
                if _wants_logits(rows[r], i):
                    logits[r].append(self._logits(b))
        return [
            torch.empty(0) if row.silent else result(row, torch.stack(of_row))
            for row, of_row in zip(rows, logits, strict=True)
        ]

    def _read_again(self, sequence: Sequence) -> None:
        """Computes the text of a sequence that has lost its recurrent memory. Raises InputError if it has mixtures."""
        assert isinstance(sequence, LlamaCppSequence)
        if not sequence.lost:
            return
        ids = [token for token in sequence.inputs if token is not None]
        if len(ids) < sequence.length:
            raise InputError("Superposed positions cannot be computed again; rewind to the text before them.")
        row, positions = Row(sequence, ids, silent=True), [[(at, [sequence.id]) for at in range(len(ids))]]
        for start in range(0, len(ids), BATCH):
            part = [(0, i) for i in range(start, min(start + BATCH, len(ids)))]
            self._decode([row], part, ids[start : start + BATCH], False, positions)
        sequence.lost = False

    def _positions(self, rows: list[Row]) -> list[list[tuple[int, list[int]]]]:
        """For each input of each row: position, and sequence ids that see it. Allocates ids for a tree's leaves."""
        positions: list[list[tuple[int, list[int]]]] = []
        for row in rows:
            s = row.sequence
            assert isinstance(s, LlamaCppSequence)
            if row.parents is None or is_chain(row.parents):
                positions.append([(s.length + i, [s.id]) for i in range(len(row.inputs))])
                continue
            inner = set(row.parents)
            leaves = [i for i in range(len(row.inputs)) if i not in inner]
            if len(leaves) > len(self._free_ids):
                raise ContextFull(
                    f"A tree of {len(leaves)} branches does not fit: {len(self._free_ids)} of the cache's "
                    f"{MAX_SEQUENCES} sequences are free; close some, or use a smaller tree."
                )
            seen_by: list[list[int]] = [[] for _ in row.inputs]
            for leaf in leaves:
                id, path = self._take_id(), path_to(leaf, row.parents)
                lib.llama_memory_seq_cp(self._memory, s.id, id, 0, -1)
                s.branches.append((id, path))
                for place in path:
                    seen_by[place].append(id)
            positions.append([(s.length + d, ids) for d, ids in zip(depths(row.parents), seen_by, strict=True)])
        return positions

    def _decode(
        self,
        rows: list[Row],
        part: list[tuple[int, int]],
        values: object,
        mixed: bool,
        positions: list[list[tuple[int, list[int]]]],
    ) -> None:
        """One native call. Raises ContextFull, ModelFileError."""
        batch = self._embedding_batch if mixed else self._token_batch
        batch.n_tokens = len(part)
        if mixed:
            flat = np.ascontiguousarray(values, dtype=np.float32)
            ctypes.memmove(batch.embd, flat.ctypes.data, flat.nbytes)
        for b, (r, i) in enumerate(part):
            if not mixed:
                batch.token[b] = values[b]  # pyright: ignore[reportIndexIssue]
            batch.pos[b], ids = positions[r][i]
            for place in range(1, self._places if mixed else 1):  # in a text the first three are the same
                batch.pos[place * len(part) + b] = batch.pos[b] if place < 3 else 0
            batch.n_seq_id[b] = len(ids)
            for n, id in enumerate(ids):
                batch.seq_id[b][n] = id
            batch.logits[b] = _wants_logits(rows[r], i)
        code = lib.llama_decode(self._context, batch)
        if code == 1:
            raise ContextFull(
                f"The cache of {self.context_length} positions is full of other texts; close a tab or wait."
            )
        if code:
            raise ModelFileError(f"llama.cpp failed on {self.name} (code {code}); restart, and run `polydraft doctor`.")

    def _logits(self, b: int) -> Tensor:
        pointer = lib.llama_get_logits_ith(self._context, b)
        view = np.ctypeslib.as_array(pointer, shape=(self.vocab_size,))
        return torch.from_numpy(view.copy())


def _affordable(model: Any) -> int:
    """Number of cells whose keys and values, 16 bits each, fit the cache's share of free memory; allocated at once."""
    heads = max(lib.llama_model_n_head(model), 1)
    width = lib.llama_model_n_head_kv(model) * lib.llama_model_n_embd(model) // heads
    cell = 2 * 2 * lib.llama_model_n_layer(model) * max(width, 1)  # bytes
    return max(LEAST_CELLS, int(CACHE_SHARE * free_bytes(torch.device("cpu"))) // max(cell, 1))


def _wants_logits(row: Row, position: int) -> bool:
    return not row.silent and position in wanted(row)


class LlamaCppSequence(Sequence):
    """A sequence id in the shared cache."""

    model: LlamaCppModel

    def __init__(self, model: LlamaCppModel, id: int) -> None:
        super().__init__(model)
        self.id = id
        self.branches: list[tuple[int, list[int]]] = []  # of a tree: the id of each leaf, the nodes on its path
        self.lost = False  # its recurrent memory: the next pass computes it again

    @property
    def _gone(self) -> bool:
        """Whether the id may belong to another sequence by now, or to nothing."""
        return self.closed or not self.model._context

    def _lose(self) -> None:
        lib.llama_memory_seq_rm(self.model._memory, self.id, -1, -1)
        self.lost = True

    def _keep(self, path: list[int]) -> None:
        if self._gone:
            return
        memory, end = self.model._memory, self.length + len(path)
        if self.model.recurrent:
            if self._tree is not None and len(path) < len(self._tree.ids):  # a chain, of which a part stays
                self._lose()
            return
        if not self.branches:  # a chain: fed like any row
            lib.llama_memory_seq_rm(memory, self.id, end, -1)
        elif path:
            id = next(id for id, positions in self.branches if path[-1] in positions)
            lib.llama_memory_seq_cp(memory, id, self.id, self.length, end)
        for id, _ in self.branches:
            self.model._give_id(id)
        self.branches = []

    def _rewind(self, length: int) -> None:
        if self._gone:
            return
        if self.model.recurrent:
            self._lose()
        else:
            lib.llama_memory_seq_rm(self.model._memory, self.id, length, -1)

    def _fork(self) -> LlamaCppSequence:
        child = LlamaCppSequence(self.model, self.model._take_id())
        child.lost = self.model.recurrent
        if not child.lost:
            lib.llama_memory_seq_cp(self.model._memory, self.id, child.id, 0, -1)
        return child

    def _close(self) -> None:
        if not self._gone:
            self.forget_tree()
            self.model._give_id(self.id)

    def __del__(self) -> None:
        # A fork dropped by an error must not keep its id. Any thread may run this.
        if not self.closed:
            self.model._dropped.extend([self.id, *(id for id, _ in self.branches)])
