"""`polydraft bench NAME`: one measurement each, beside its peer in the same run."""

# Name -> the measurement. Each is a module of this package (- is _ there) with `measure(options, progress) -> Report`.
BENCHES = {
    "drafts": "time for k drafts of 10 tokens: Superposed, sampled in one batch, one after another",
    "keystroke": "key press to the drafts on the page, in real Chromium",
    "stillness": "counts of rows that stay and of movements in the page while text is typed, in real Chromium",
    "startup": "process start to a page that answers",
    "healing": "how often one of 3 drafts restores a half-typed word",
    "samplers": "each rule beside Hugging Face's own, Top-W beside plain NumPy",
    "per-token": "the whole time of a generated token under Top-W and its peers",
    "batches": "speculation for 1 to 16 texts in shared passes, beside plain decoding of as many",
    "panel": "slider move to chart and drafts of the sampling panel, in real Chromium; typing with the panel open",
    "cpu-torch": "the torch backend's step on this CPU, beside the time of reading its weights",
    "models": "models in the shapes that people have, random weights, in compiled code beside llama.cpp",
    "gpu": "steps, drafts, many people and samplers on a CUDA device, beside its bandwidth and Hugging Face's generate",
    "ngram": "n-gram stores: bytes, look-ups, opening, building, beside dict, SQLite, KenLM and infini-gram",
    "speculative": "tokens per second, accept length and speed-up over plain decoding, method by method",
    "serve": "editors that request completions at every key, 1 to 64 at once, beside llama-cpp-python and vLLM",
    "lsp": "the language server follows a document of 4 MB, by changes beside whole texts",
    "soak": "many typists at once on a real server, for minutes: waits, fairness, memory, leaks",
}
