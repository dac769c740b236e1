"""Fields of other programs' requests that change nothing here, each with its reason, and other names of our options.

Programs send every field of the server that they were written for. A field whose value has no effect on Polydraft's
drafts is left out of the request before it is validated. With a value that would change the text it becomes the option
of a rule that Polydraft has (`RENAMED`), or is refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from app.wire.bounds import LABEL, LARGEST, MOST_NAMES
from app.wire.refused import Refused

Test = Callable[[Any], bool]
MIROSTAT = (1, 2)  # the versions of the rule
WINDOW = 1024  # tokens that the model reads: a penalty over more of them counts all


def number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def switch(value: Any) -> bool:
    return isinstance(value, bool)


def words(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LABEL


def instruction(value: Any) -> bool:
    return isinstance(value, str)


def some(value: Any) -> bool:
    """A number, a switch, a short text, or a short list or object of these."""
    if isinstance(value, list | dict):
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        return len(value) <= MOST_NAMES and all(
            item is None or number(item) or switch(item) or words(item) for item in inner
        )
    return number(value) or switch(value) or words(value)


def only(*expected: Any) -> Test:
    """One of these values, of the same kind: 1 is not true."""
    return lambda value: any(
        value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in expected
    )


@dataclass(frozen=True)
class Harmless:
    """A field.

    Attributes:
        accepts: whether a value changes nothing; null never does.
        why: the reason.
    """

    accepts: Test
    why: str


_STORED = "Polydraft stores no request and no response."
_CACHE = "All texts share the cache, which finds their common beginnings itself."
_PENALTY = "The value switches this penalty off; another would change the text."
_SAMPLER = "The value switches this sampler off; another would change the text."
_OFF = "It belongs to a sampler or a penalty that is off."
_LINE = "A draft ends with its line."
_TUNES = "It tunes the engine of another server; the options of `polydraft serve` choose Polydraft's."
_SHOWN = "It adds details to the response that Polydraft does not have, and programs read them if they are there."
_LIMIT = "Drafts are short, and their text is as long as the model reads."
_TOOLS = "Polydraft continues a text, and calls no tools."
_FORM = "The response is a text."

HARMLESS: Mapping[str, Harmless] = {
    # OpenAI's interface
    "store": Harmless(only(False), _STORED),
    "metadata": Harmless(some, _STORED),
    "service_tier": Harmless(words, "There is one tier, this machine."),
    "safety_identifier": Harmless(words, _STORED),
    "prompt_cache_key": Harmless(words, _CACHE),
    "prompt_cache_retention": Harmless(words, _CACHE),
    "frequency_penalty": Harmless(only(0), _PENALTY),
    "presence_penalty": Harmless(only(0), _PENALTY),
    "tools": Harmless(only([]), _TOOLS),
    "functions": Harmless(only([]), _TOOLS),
    "tool_choice": Harmless(only("none", "auto"), _TOOLS),
    "parallel_tool_calls": Harmless(switch, _TOOLS),
    "response_format": Harmless(only({"type": "text"}), _FORM),
    "modalities": Harmless(only(["text"]), _FORM),
    "verbosity": Harmless(words, "Drafts are short."),
    "reasoning_effort": Harmless(words, "The model drafts without reasoning."),
    # llama-server
    "cache_prompt": Harmless(switch, _CACHE),
    "n_keep": Harmless(number, _LIMIT),
    "n_discard": Harmless(number, _LIMIT),
    "n_indent": Harmless(number, "A draft ends with its line, so the indentation of a next one is irrelevant."),
    "t_max_prompt_ms": Harmless(
        number, "llama-server does not apply it, and an empty response would be cached by the editor."
    ),
    "t_max_predict_ms": Harmless(number, f"llama-server applies it after a line break only. {_LINE}"),
    "repeat_penalty": Harmless(only(1), _PENALTY),
    "repeat_last_n": Harmless(number, _OFF),
    "penalize_nl": Harmless(switch, _OFF),
    "dry_multiplier": Harmless(only(0), "The value switches this penalty off."),
    "dry_base": Harmless(number, _OFF),
    "dry_allowed_length": Harmless(number, _OFF),
    **dict.fromkeys(("dry_penalty_last_n", "dry_range"), Harmless(number, _OFF)),
    "dry_sequence_breakers": Harmless(some, _OFF),
    "xtc_probability": Harmless(only(0), "The value switches this sampler off."),
    "xtc_threshold": Harmless(number, _OFF),
    "typical_p": Harmless(only(1), _SAMPLER),
    "typ_p": Harmless(only(1), _SAMPLER),
    **dict.fromkeys(("top_n_sigma", "nsigma"), Harmless(only(-1, 0), _SAMPLER)),
    "tfs_z": Harmless(only(1), _SAMPLER),
    "mirostat": Harmless(only(0), _SAMPLER),
    "mirostat_tau": Harmless(number, _OFF),
    "mirostat_eta": Harmless(number, _OFF),
    "dynatemp_range": Harmless(only(0), _SAMPLER),
    "dynatemp_exponent": Harmless(number, _OFF),
    "adaptive_target": Harmless(lambda value: number(value) and value < 0, _SAMPLER),
    "adaptive_decay": Harmless(number, _OFF),
    "min_keep": Harmless(number, "A rule keeps at least one token."),
    "n_probs": Harmless(number, _SHOWN),
    "post_sampling_probs": Harmless(switch, _SHOWN),
    "return_tokens": Harmless(switch, _SHOWN),
    "return_progress": Harmless(switch, _SHOWN),
    "timings_per_token": Harmless(switch, _SHOWN),
    "grammar": Harmless(only(""), "An empty grammar allows every text."),
    "json_schema": Harmless(only({}), "An empty schema allows every text."),
    "lora": Harmless(only([]), "No adapter is asked for."),
    "ignore_eos": Harmless(only(False), "A draft may end with the text."),
    # Ollama
    "num_keep": Harmless(number, _LIMIT),
    **dict.fromkeys(("num_batch", "num_gpu", "main_gpu", "num_thread"), Harmless(number, _TUNES)),
    **dict.fromkeys(("low_vram", "use_mmap", "use_mlock", "vocab_only", "numa", "f16_kv"), Harmless(switch, _TUNES)),
    "keep_alive": Harmless(some, "The model stays loaded."),
    "think": Harmless(only(False), "The model drafts without reasoning."),
    "format": Harmless(only(""), _FORM),
    "images": Harmless(only([]), "Polydraft continues texts alone."),
    "context": Harmless(only([]), "The text is the prompt."),
    "system": Harmless(instruction, "It instructs a model of a chat; Polydraft continues the prompt."),
    "template": Harmless(instruction, "It instructs a model of a chat; Polydraft continues the prompt."),
    # text-generation-webui, vLLM, TabbyAPI and the programs that send the fields of all of them, such as SillyTavern
    "repetition_penalty": Harmless(only(1), _PENALTY),
    "rep_pen": Harmless(only(1), _PENALTY),
    "rep_pen_range": Harmless(number, _OFF),
    "rep_pen_slope": Harmless(number, _OFF),
    "repetition_penalty_range": Harmless(number, _OFF),
    "repetition_decay": Harmless(number, _OFF),
    "encoder_repetition_penalty": Harmless(only(1), _PENALTY),
    "no_repeat_ngram_size": Harmless(only(0), _PENALTY),
    "penalty_alpha": Harmless(only(0), _PENALTY),
    "typical": Harmless(only(1), _SAMPLER),
    "tfs": Harmless(only(1), _SAMPLER),
    "top_a": Harmless(only(0), _SAMPLER),
    "skew": Harmless(only(0), _SAMPLER),
    "smoothing_factor": Harmless(only(0), _SAMPLER),
    "smoothing_curve": Harmless(number, _OFF),
    "epsilon_cutoff": Harmless(only(0), _SAMPLER),
    "eta_cutoff": Harmless(only(0), _SAMPLER),
    "dynamic_temperature": Harmless(only(False), _SAMPLER),
    "guidance_scale": Harmless(only(1), "The value switches guidance off; another would change the text."),
    "negative_prompt": Harmless(only(""), "It belongs to guidance, which is off."),
    "grammar_string": Harmless(only(""), "An empty grammar allows every text."),
    "ban_eos_token": Harmless(only(False), "A draft may end with the text."),
    "add_bos_token": Harmless(switch, "The model's own file says whether a text begins with a token."),
    "skip_special_tokens": Harmless(only(True), "Drafts contain no special tokens."),
    "spaces_between_special_tokens": Harmless(switch, "Drafts contain no special tokens."),
    "include_stop_str_in_output": Harmless(only(False), "A draft ends before a stop."),
    "min_length": Harmless(only(0), "Drafts may be short."),
    "min_tokens": Harmless(only(0), "Drafts may be short."),
    "max_tokens_second": Harmless(number, "Drafts are sent as fast as the machine computes them."),
    "num_beams": Harmless(only(1), "One beam is no search."),
    "length_penalty": Harmless(number, "It belongs to beam search, which is off."),
    "early_stopping": Harmless(switch, "It belongs to beam search, which is off."),
    "truncation_length": Harmless(number, _LIMIT),
    "num_ctx": Harmless(number, _LIMIT),
    "n_ctx": Harmless(number, _LIMIT),
    "api_type": Harmless(words, "It is meant for the program between the page and the server."),
    "api_server": Harmless(words, "It is meant for the program between the page and the server."),
    "legacy_api": Harmless(only(False), "It is meant for the program between the page and the server."),
}

# Values of known fields that stand for a field that is left out
ABSENT: Mapping[str, Harmless] = {
    "seed": Harmless(only(-1, 2**32 - 1), "llama-server's values for a seed that differs each time."),
    "stop": Harmless(only("", []), "An empty text ends no draft."),
}

# The field that switches the rule of another field on.
SWITCHES = (
    dict.fromkeys(
        (
            "dry_multiplier",
            "dry_base",
            "dry_allowed_length",
            "dry_penalty_last_n",
            "dry_range",
            "dry_sequence_breakers",
        ),
        "dry_multiplier",
    )
    | dict.fromkeys(("xtc_probability", "xtc_threshold"), "xtc_probability")
    | dict.fromkeys(("mirostat", "mirostat_tau", "mirostat_eta"), "mirostat")
)

# Those that are options of ours, where the rule is on.
OURS = {"dry_multiplier", "dry_base", "xtc_probability", "xtc_threshold"}

# Fields of rules that Polydraft has under another name.
RENAMED = {
    **dict.fromkeys(("top_n_sigma", "nsigma"), "n_sigma"),
    **dict.fromkeys(("typical_p", "typ_p", "typical"), "mass"),
    "dry_allowed_length": "dry_allowed",
    "mirostat_tau": "surprise",
    "mirostat_eta": "rate",
}

WITHOUT_MIROSTAT = {
    "dry_breakers",
    "dry_last_n",
    "top_k",
    "top_p",
    "min_p",
    "xtc_probability",
    "xtc_threshold",
    "dry_multiplier",
    "dry_base",
} | {own for name, own in RENAMED.items() if not name.startswith("mirostat")}

# How many of the last tokens DRY reads, by the name of the field: the values that stand for the whole text. In
# llama-server 0 switches DRY off; TabbyAPI has both names, and 0 is the whole text.
WHOLE = {"dry_penalty_last_n": (-1,), "dry_range": (0, -1)}

# One field by the names of several servers. Programs send several of them at once, with one value.
SAME = (
    ("max_tokens", "n_predict", "num_predict", "max_new_tokens", "max_completion_tokens"),
    ("seed", "sampler_seed", "random_seed"),
    ("stop", "stopping_strings"),
    ("n_cmpl", "n"),
)


def translated(body: Any, known: Collection[str]) -> Any:
    """The body of a request without the fields that change nothing, and with the names of its interface.

    Args:
        known: the interface's own fields.
    Raises: Refused for a value that would change the text, and for two different values of one field.
    """
    if not isinstance(body, dict):
        return body
    body = _with_one_mirostat(body)
    fields = dict(body)
    for name in [name for name in body if name in HARMLESS and name not in known]:  # a chain has their order
        if (switch := SWITCHES.get(name)) and number(body.get(switch)) and not HARMLESS[switch].accepts(body[switch]):
            if name in OURS:
                continue
            value = body[name]
            if name == "dry_sequence_breakers":
                del fields[name]
                if value is not None:
                    fields["dry_breakers"] = _breakers(value)
                continue
            if name in RENAMED:
                _rename(fields, name)
                continue
            del fields[name]
            if name == switch == "mirostat":
                if value not in MIROSTAT:
                    raise Refused(422, f"mirostat {value} is not supported.", "1 and 2 are.", name)
                fields["rule"] = "mirostat"
                if value != MIROSTAT[-1]:
                    fields["mirostat_version"] = int(value)
            elif name in WHOLE:
                _read_last(fields, name, value)
            elif value is not None:
                raise Refused(422, f"{name} is not supported where {switch} is on.", "Leave it out.", name)
            continue
        if body[name] is None or HARMLESS[name].accepts(body[name]):
            del fields[name]
        elif name in RENAMED:
            _rename(fields, name)
        else:
            raise Refused(422, f"{name} is not supported.", "Leave it out.", name)
    if fields.get("rule") == "mirostat" and "mirostat" in body:  # llama-server ignores all other samplers then
        fields = {name: value for name, value in fields.items() if name not in WITHOUT_MIROSTAT}
    for names in SAME:
        own = next((name for name in names if name in known), None)
        for name in names if own else ():
            if name == own or name not in fields:
                continue
            value = fields.pop(name)
            if fields.get(own) is None:
                fields[own] = value
            elif value is not None and value != fields[own]:
                raise Refused(422, f"{own} and {name} are two different values.", f"Leave {name} out.", name)
    return {
        name: value
        for name, value in fields.items()
        if not (value is None and name in known) and not (name in ABSENT and ABSENT[name].accepts(value))
    }


def _with_one_mirostat(body: dict[str, Any]) -> dict[str, Any]:
    """The body with text-generation-webui's name of `mirostat`, too, as that field."""
    if "mirostat_mode" not in body:
        return body
    own, other = body.get("mirostat"), body["mirostat_mode"]
    if own and other and own != other:
        message = "mirostat and mirostat_mode are two different values."
        raise Refused(422, message, "Leave mirostat_mode out.", "mirostat_mode")
    rest = {name: value for name, value in body.items() if name not in ("mirostat", "mirostat_mode")}
    return {"mirostat": own or other} | rest


def _read_last(fields: dict[str, Any], name: str, value: Any) -> None:
    """Takes over the number of last tokens that DRY reads, unless it is the whole text."""
    if value is None or value in WHOLE[name]:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        message = f"{name} {value} is not supported: it switches DRY off in one server and reads all in another."
        raise Refused(422, message if value == 0 else f"{name} is no number of tokens.", "Leave it out.", name)
    if value < WINDOW:
        fields["dry_last_n"] = value


def _breakers(value: Any) -> list[str]:
    """A list of texts; some programs write it as JSON, with brackets or without. Raises Refused for anything else."""
    if isinstance(value, str) and len(value) <= MOST_NAMES * LABEL:
        try:
            value = json.loads(value if value.lstrip().startswith("[") else f"[{value}]")
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        message = 'dry_sequence_breakers is no list of texts, and no JSON of one such as ["\\n", ":"].'
        raise Refused(422, message, param="dry_sequence_breakers")
    return value


def _rename(fields: dict[str, Any], name: str) -> None:
    """Gives a field the name of our option, in its place."""
    own, value = RENAMED[name], fields[name]
    if value is not None and not number(value):
        raise Refused(422, f"{name} is not a number.", "Leave it out.", name)
    if value is None or own in fields:
        if value not in (None, fields.get(own)):
            raise Refused(422, f"{own} and {name} are two different values.", f"Leave {name} out.", name)
        del fields[name]
        return
    renamed = {own if each == name else each: value for each, value in fields.items()}
    fields.clear()
    fields.update(renamed)
