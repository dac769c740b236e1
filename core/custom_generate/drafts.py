"""The function that `generate` of transformers calls in place of its own decoding.

The model is the caller's own, as transformers loaded it. There are no n-grams, so this is the method of the paper, but
with distinct beginnings; `forks` and `exact_steps` are options as in `core.superposed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation.logits_process import LogitsProcessorList
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria, StoppingCriteriaList
from transformers.generation.utils import GenerateBeamDecoderOnlyOutput

from core.drafting.drafts import Drafts, best_of
from core.errors import InputError
from core.models.module import embedding_weight
from core.models.tokenizer import Tokenizer
from core.models.torch_model import TorchModel
from core.options import LIBRARY
from core.superposed import superpose_batch

KNOWN = {"attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep", "cache_position"}


def superposed_drafts(
    model: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    *,
    distinct: bool = LIBRARY.distinct,
    forks: int = 0,
    exact_steps: int = 0,
    **model_kwargs: Any,
) -> Tensor | GenerateBeamDecoderOnlyOutput:
    """The drafts of each prompt, best first. `generate` prepares the arguments and calls this.

    Args:
        model: decoder-only.
        input_ids: (B·k, n), each prompt k times, where k is `num_return_sequences`; padded on the left.
        logits_processor: of the superposed row it processes the distribution that all drafts share.
        stopping_criteria: length and end of text.
        distinct, forks, exact_steps: see `core.drafting.drafts.Options`.
        model_kwargs: attention_mask (B·k, n).
    Returns: (B·k, n + m) ids, padded on the right; with `return_dict_in_generate` also ln P of each draft, (B·k,), as
        `sequences_scores`. A prompt with fewer than k drafts has rows without new tokens, with ln P of -inf.
    Raises: InputError for what Superposed Decoding cannot do; ModelFileError for a model that takes no embeddings, or
        whose memory cannot be rewound.
    """
    config, k = generation_config, generation_config.num_return_sequences or 1
    _refuse(model, input_ids, stopping_criteria, config, model_kwargs)
    mask = model_kwargs.get("attention_mask")
    rows = range(0, len(input_ids), k)
    prompts = [input_ids[i] if mask is None else input_ids[i][mask[i].bool()] for i in rows]
    length = int(config.max_length or 0) - input_ids.shape[1]
    ends = _ids(config.eos_token_id)

    def rule(ids: Tensor, logits: Tensor) -> Tensor:
        return logits_processor(ids.to(input_ids.device), logits.to(input_ids.device).clone()).cpu()  # pyright: ignore[reportArgumentType]

    latest: list[Drafts] = []
    with _unchanged(model):
        vocabulary = embedding_weight(model).shape[0]
        wrapped = TorchModel(model, Numbers(vocabulary, ends), model.config.model_type, _context(model, config))
        options = {
            "distinct": distinct,
            "forks": forks,
            "exact_steps": exact_steps,
            "end_below": 0.0,
            "min_branch": 0.0,
        }
        options |= {"rule": rule if logits_processor else None, "stop_ids": frozenset(ends)}
        for drafts_so_far in superpose_batch(wrapped, [ids.tolist() for ids in prompts], k, length, **options):
            latest = drafts_so_far
    best = [_best(drafts, k) for drafts in latest]
    most = max((len(ids) for drafts in best for ids, _ in drafts), default=0)
    filler = next(iter(_ids(config.pad_token_id) or ends), 0)
    sequences = torch.full((len(input_ids), input_ids.shape[1] + most), filler, dtype=input_ids.dtype)
    sequences[:, : input_ids.shape[1]] = input_ids.cpu()
    scores = torch.full((len(input_ids),), -torch.inf)
    for i, drafts in zip(rows, best, strict=True):
        for at, (ids, logprob) in enumerate(drafts, start=i):
            sequences[at, input_ids.shape[1] : input_ids.shape[1] + len(ids)] = torch.tensor(ids)
            scores[at] = logprob
    sequences = sequences.to(input_ids.device)
    if not config.return_dict_in_generate:
        return sequences
    return GenerateBeamDecoderOnlyOutput(
        sequences=sequences,  # pyright: ignore[reportArgumentType] annotated as a LongTensor, which is only a name
        sequences_scores=scores.to(input_ids.device),  # pyright: ignore[reportArgumentType]
    )


class Numbers(Tokenizer):
    """Stands for a tokenizer where there is only its vocabulary's size: the bytes of an id are the id itself."""

    def __init__(self, size: int, ends: list[int]) -> None:
        self.pieces = [i.to_bytes(4, "big") for i in range(size)]
        self.eos_ids = self.special_ids = frozenset(ends)
        self.start_ids = []
        self.document_start = 0

    def encode(self, text: str) -> list[int]:
        raise InputError(f"{text!r} given; here the model has no tokenizer, so ids are expected.")


def _best(drafts: Drafts, k: int) -> list[tuple[list[int], float]]:
    """The k best drafts with their ln P; by the paper's rule those that ended earlier are among them."""
    return [(draft.ids, draft.logprob) for draft in best_of([*drafts.drafts, *drafts.finished], k)]


def _refuse(
    model: PreTrainedModel,
    input_ids: Tensor,
    stopping: StoppingCriteriaList,
    config: GenerationConfig,
    model_kwargs: dict[str, Any],
) -> None:
    if model.config.is_encoder_decoder:
        raise InputError("An encoder-decoder model given; Superposed Decoding needs a decoder-only model.")
    if input_ids.shape[1] == 0:
        raise InputError(
            "No input_ids given; Superposed Decoding needs at least one token, and takes no inputs_embeds."
        )
    if config.do_sample:
        raise InputError("do_sample given; Superposed Decoding does not sample. Set do_sample=False.")
    if (config.num_beams or 1) not in (1, config.num_return_sequences):
        raise InputError(
            f"num_beams {config.num_beams} given; Superposed Decoding has no beams. Leave it out, or give "
            f"num_return_sequences, {config.num_return_sequences or 1}, where transformers asks for it."
        )
    others = [
        type(criterion).__name__
        for criterion in stopping
        if not isinstance(criterion, MaxLengthCriteria | EosTokenCriteria)
    ]
    if others:
        raise InputError(f"{others[0]} given; drafts stop at max_new_tokens and at eos_token_id only. Leave it out.")
    if unknown := [name for name, value in model_kwargs.items() if name not in KNOWN and value is not None]:
        raise InputError(f"{unknown[0]} given, which Superposed Decoding cannot pass to the model. Leave it out.")


def _ids(token: int | list[int] | None) -> list[int]:
    return [] if token is None else list(token) if isinstance(token, list | tuple) else [token]


def _context(model: PreTrainedModel, config: GenerationConfig) -> int:
    stated = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return stated if isinstance(stated, int) and stated > 0 else int(config.max_length or 0)


@contextmanager
def _unchanged(model: PreTrainedModel) -> Iterator[None]:
    """Afterwards the model trains as before."""
    training = model.training
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        yield
    finally:
        model.train(training)
        for parameter in trained:
            parameter.requires_grad_(True)
