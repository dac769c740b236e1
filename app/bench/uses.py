"""Which measurements use each option of `polydraft bench`. The help texts and the refusals are made from this table, by
the name of the parameter."""

from app.uses import Use

_SPECULATIVE = ("speculative",)
_MANY = ("soak", "serve")

USES = {
    "text": Use("A file or folder of text to measure on; .txt or .jsonl.zst.", but=("startup", "cpu-torch")),
    "backend": Use("The backend to measure.", but=("cpu-torch", "gpu", "ngram")),
    "model": Use("A model's name, file or folder.", but=("cpu-torch", "gpu")),
    "base_store": Use("An n-gram store's file, or none.", ("drafts", "healing", "gpu", "speculative")),
    "repetitions": Use(
        "Rounds, words or passages; the default depends on the measurement.", but=(*_MANY, *_SPECULATIVE)
    ),
    "tiny": Use("Measure a tiny shape, on any device, to test the measurement.", ("gpu",)),
    "prompts": Use("Prompts of each kind.", _SPECULATIVE),
    "head": Use("The folder of an EAGLE-3 head.", ("speculative", "batches")),
    "precision": Use("Weights of torch on a CPU; see polydraft --help.", ("speculative", "batches")),
    "pruning": Use("Also measure other rules of pruning (the paper's Table 8).", _SPECULATIVE),
    "sweep": Use("Measure temperatures and θ, instead of all methods at T = 1.", _SPECULATIVE),
    "plots": Use("With --sweep: draw the curves to this SVG file.", _SPECULATIVE),
    "minutes": Use("Duration; for serve, of each number of clients.", _MANY),
    "typists": Use("Typists at once.", _MANY),
    "vllm": Use("The Python of an environment with vLLM, which is measured too.", ("serve",)),
}
