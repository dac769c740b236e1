"""Renders a conversation as token ids, by the chat template that comes with an instruction model.

A template is a small Jinja program in the model's file; transformers runs it in Jinja's sandbox. The names of control
tokens in its output become those tokens; everything else is text, so a message that contains such a name would become
one too. Use it for prompts of measurements, not for text of other people.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.errors import ModelFileError
from core.models import gguf_file
from core.models.located import locate
from core.models.tokenizer import CONTROL, Tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, str]  # {"role": "system" | "user" | "assistant", "content": …}


@dataclass(frozen=True)
class ChatTemplate:
    """The chat template of one model.

    Attributes:
        by: runs the template.
        names: ids of the control tokens, by name.
    """

    by: PreTrainedTokenizerBase
    names: dict[str, int]

    def ids(self, tokenizer: Tokenizer, messages: list[Message]) -> list[int]:
        """The conversation up to where the model's next answer begins. Raises ModelFileError for a faulty template."""
        from jinja2 import TemplateError

        try:
            text = self.by.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise ModelFileError(f"The model's chat template fails ({error}); use another model.") from error
        assert isinstance(text, str)
        longest_first = sorted(self.names, key=len, reverse=True)
        parts = re.split("(" + "|".join(map(re.escape, longest_first)) + ")", text) if longest_first else [text]
        ids: list[int] = []
        for part in parts:
            ids += [self.names[part]] if part in self.names else tokenizer.encode(part)
        return ids


def chat_template(name: str) -> ChatTemplate | None:
    """The chat template of the model that `load_model` finds under this name, or None if it has none.

    Raises: ModelNotFound, ModelFileError.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    source, _ = locate(name)
    if isinstance(source, str) or source.is_dir():
        by = AutoTokenizer.from_pretrained(str(source))
        names = {token: by.convert_tokens_to_ids(token) for token in by.all_special_tokens}
        return ChatTemplate(by, names) if by.chat_template else None
    fields = gguf_file.read(source).fields
    template = fields.get("tokenizer.chat_template")
    if not isinstance(template, str):
        return None
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import BPE

    tokens, types = (fields.get(f"tokenizer.ggml.{key}") or [] for key in ("tokens", "token_type"))
    names = {token: i for i, (token, kind) in enumerate(zip(tokens, types, strict=False)) if kind == CONTROL}
    ends = {
        f"{end}_token": tokens[fields[f"tokenizer.ggml.{end}_token_id"]]
        for end in ("bos", "eos")
        if f"tokenizer.ggml.{end}_token_id" in fields
    }
    return ChatTemplate(PreTrainedTokenizerFast(tokenizer_object=Backend(BPE()), chat_template=template, **ends), names)
