"""The installed package `polydraft`: in a wheel it contains `app`, `core`, `ngram_builder` and the rest, so that the
wheel has one top-level package. In the repository these folders are beside it; `setup.py` moves them."""
