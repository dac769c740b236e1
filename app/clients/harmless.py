"""Fields of other programs' requests that change nothing here, each with its reason, and other names of our options.

Programs send every field of the server that they were written for. A field whose value has no effect on Polydraft's
drafts is left out of the request before it is validated. With a value that would change the text it becomes the option
of a rule that Polydraft has (`RENAMED`), or is refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
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


def each(accepts: Test, *names: str) -> dict[str, Test]:
    """Fields with the same test."""
    return dict.fromkeys(names, accepts)


# For each field, whether a value changes nothing; null never does. Below each reason come the fields that have it.
HARMLESS: Mapping[str, Test] = {
    # Polydraft stores no request and no response.
    "store": only(False),
    "metadata": some,
    "safety_identifier": words,
    # All texts share the cache, which finds their common beginnings itself; and the model stays loaded.
    **each(words, "prompt_cache_key", "prompt_cache_retention"),
    "cache_prompt": switch,
    "keep_alive": some,
    # The value switches a penalty off; another would change the text. What belongs to one that is off has no effect.
    **each(only(0), "frequency_penalty", "presence_penalty", "no_repeat_ngram_size", "penalty_alpha", "dry_multiplier"),
    **each(only(1), "repeat_penalty", "repetition_penalty", "rep_pen", "encoder_repetition_penalty"),
    **each(number, "repeat_last_n", "rep_pen_range", "rep_pen_slope", "repetition_penalty_range", "repetition_decay"),
    **each(number, "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_range"),
    "dry_sequence_breakers": some,
    "penalize_nl": switch,
    # The same of samplers.
    **each(only(0), "xtc_probability", "mirostat", "dynatemp_range", "top_a", "skew", "smoothing_factor"),
    **each(only(0), "epsilon_cutoff", "eta_cutoff"),
    **each(only(1), "typical_p", "typ_p", "typical", "tfs_z", "tfs"),
    **each(only(-1, 0), "top_n_sigma", "nsigma"),
    **each(number, "xtc_threshold", "mirostat_tau", "mirostat_eta", "dynatemp_exponent", "adaptive_decay"),
    "smoothing_curve": number,
    "adaptive_target": lambda value: number(value) and value < 0,
    "dynamic_temperature": only(False),
    "min_keep": number,  # a rule keeps at least one token
    # The same of guidance, of beam search, and of grammars, of which an empty one allows every text.
    "guidance_scale": only(1),
    **each(only(""), "negative_prompt", "grammar", "grammar_string"),
    "json_schema": only({}),
    "num_beams": only(1),
    "length_penalty": number,
    "early_stopping": switch,
    # Polydraft continues a text: it calls no tools, follows no instructions, and answers with a text.
    **each(only([]), "tools", "functions", "images", "context", "lora"),
    "tool_choice": only("none", "auto"),
    "parallel_tool_calls": switch,
    "response_format": only({"type": "text"}),
    "modalities": only(["text"]),
    "format": only(""),
    **each(instruction, "system", "template"),
    "reasoning_effort": words,
    "think": only(False),
    # Drafts are short, may end with the text, and their text is as long as the model reads.
    "verbosity": words,
    **each(number, "n_keep", "n_discard", "num_keep", "truncation_length", "num_ctx", "n_ctx"),
    **each(only(0), "min_length", "min_tokens"),
    **each(only(False), "ignore_eos", "ban_eos_token"),
    # A draft ends with its line: llama-server applies the second only after a line break. It does not apply the third,
    # and an empty response would be cached by the editor.
    **each(number, "n_indent", "t_max_predict_ms", "t_max_prompt_ms"),
    # Drafts contain no special tokens and no stop; the model's file says with which token a text begins.
    "skip_special_tokens": only(True),
    "include_stop_str_in_output": only(False),
    **each(switch, "spaces_between_special_tokens", "add_bos_token"),
    # Programs read these details of the response if they are there, and Polydraft does not have them.
    **each(number, "n_probs"),
    **each(switch, "post_sampling_probs", "return_tokens", "return_progress", "timings_per_token"),
    # They tune the engine of another server; the options of `polydraft serve` choose Polydraft's.
    **each(number, "num_batch", "num_gpu", "main_gpu", "num_thread", "max_tokens_second"),
    **each(switch, "low_vram", "use_mmap", "use_mlock", "vocab_only", "numa", "f16_kv"),
    # They are meant for whatever is between the program and the server.
    **each(words, "service_tier", "api_type", "api_server"),
    "legacy_api": only(False),
}

# Values of known fields that stand for a field that is left out: a seed that differs each time, and a text that ends no
# draft.
ABSENT: Mapping[str, Test] = {"seed": only(-1, 2**32 - 1), "stop": only("", [])}

# The field that switches the rule of another field on.
SWITCHES = {
    **dict.fromkeys(("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n"), "dry_multiplier"),
    **dict.fromkeys(("dry_range", "dry_sequence_breakers"), "dry_multiplier"),
    **dict.fromkeys(("xtc_probability", "xtc_threshold"), "xtc_probability"),
    **dict.fromkeys(("mirostat", "mirostat_tau", "mirostat_eta"), "mirostat"),
}

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

# The other samplers, which llama-server ignores with mirostat.
WITHOUT_MIROSTAT = {*OURS, "dry_breakers", "dry_last_n", "top_k", "top_p", "min_p"} | {
    own for name, own in RENAMED.items() if not name.startswith("mirostat")
}

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
        value, switch = body[name], SWITCHES.get(name)
        on = switch is not None and number(body.get(switch)) and not HARMLESS[switch](body[switch])
        if on and name in OURS:
            continue
        if value is None or (not on and HARMLESS[name](value)):
            del fields[name]
        elif name in RENAMED:
            _rename(fields, name)
        elif on and name in TAKEN:
            del fields[name]
            fields |= TAKEN[name](name, value)
        else:
            where = f" where {switch} is on" if on else ""
            raise Refused(422, f"{name} is not supported{where}.", "Leave it out.", name)
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
        if not (value is None and name in known) and not (name in ABSENT and ABSENT[name](value))
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


def _mirostat(name: str, value: Any) -> dict[str, Any]:
    """The rule, and its version unless it is the usual one."""
    if value not in MIROSTAT:
        raise Refused(422, f"mirostat {value} is not supported.", "1 and 2 are.", name)
    return {"rule": "mirostat"} | ({} if value == MIROSTAT[-1] else {"mirostat_version": int(value)})


def _last(name: str, value: Any) -> dict[str, Any]:
    """The number of last tokens that DRY reads, unless it is the whole text."""
    if value in WHOLE[name]:
        return {}
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        message = f"{name} {value} is not supported: it switches DRY off in one server and reads all in another."
        raise Refused(422, message if value == 0 else f"{name} is no number of tokens.", "Leave it out.", name)
    return {"dry_last_n": value} if value < WINDOW else {}


def _breakers(name: str, value: Any) -> dict[str, Any]:
    """A list of texts; some programs write it as JSON, with brackets or without. Raises Refused for anything else."""
    if isinstance(value, str) and len(value) <= MOST_NAMES * LABEL:
        try:
            value = json.loads(value if value.lstrip().startswith("[") else f"[{value}]")
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        message = f'{name} is no list of texts, and no JSON of one such as ["\\n", ":"].'
        raise Refused(422, message, param=name)
    return {"dry_breakers": value}


# What becomes of the fields of a rule that is on, where they are no options of ours under any name.
TAKEN: Mapping[str, Callable[[str, Any], dict[str, Any]]] = {
    "mirostat": _mirostat,
    "dry_sequence_breakers": _breakers,
    **dict.fromkeys(WHOLE, _last),
}


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
