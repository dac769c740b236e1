"""`polydraft eval NAME`: the quality of drafts on held-out text, beside their peers in the same run."""

# Name -> the evaluation. Each is a module of this package with `measure(options, progress) -> Report`.
EVALS = {
    "drafts": "matches, time: greedy, nucleus of top-40, beam, branching greedy, Superposed; with n-grams and without",
    "typing": "keys that a typist saves with 1, 3, 5 and 9 drafts, beside distinct beginnings, greedy, branching, beam",
    "time": "time that a typist saves who pays for reading and taking drafts: always, by a threshold, when they pay",
    "keytype": "KeyTypeBench's cases of inline prose completion: the best draft, and the best of 3 and of 9",
    "personal": "the effect of a personal store, learned from one text of a writer and tested on another",
    "adapter": "the writer's next token with an adapter trained on an earlier text, and without; the cost of a pass",
    "verified": "superposed drafts before and after one pass that checks them, beside branching greedy",
    "lossless": "greedy text with speculation beside text without, token by token, on every prompt",
    "dice": "how often the target's sampled token is among n proposals: likeliest, by rejection, with the same noise",
    "arc-risk": "whether the bound of ARC's tolerance holds on the tokens that it accepted",
    "arc-answers": "correct answers under ARC's tolerance, beside lossless speculation (ARC-Decode, Table 3)",
    "tune": "the search for the defaults of personal stores, cross-validated on the training text",
    "tune-adapter": "ranks, places, rates, epochs and replays of adapters, cross-validated on the training text",
    "tune-paper": "the search for α and τ of Superposed Decoding by its paper, on a separate half of the text",
    "samplers": "each rule at temperatures 0.5 to 4: matches of the best of 3 drafts with the writer, variety",
    "coverage": "the share of templated questions that one of several drafts answers (SPD, Figure 5 and Table 2)",
    "perplexity": "perplexity of each method's drafts, and with other α and τ (SPD, Tables 1, 3 to 6)",
    "repetition": "repetition within and between drafts of up to 200 tokens, with resets (SPD, Figure 8)",
    "linearity": "how well a mixture's pass replaces one pass per draft, by step and layer (SPD, Figures 3 and 16)",
    "tails": "tokens at the ends of drafts that the model finds implausible, at every key and at full length; time",
    "answers": "correct answers to templated questions by each rule against T, and of n × T of Top-nσ; majority of N",
    "top-w": "where distances between tokens change Top-W's choice, and whether that improves it",
    "top-w-grid": "the match and its gain over a mass cut for every λ and β of Top-W's appendix M, and for ours",
    "top-n-sigma": "the logits' spread, and where nuclei end in standard deviations (Top-nσ, Figures 2, 3 and 6)",
}
