"""What is installed as `polydraft`: in a wheel this package holds `app`, `core`, `ngram_builder` and the rest, so that
nothing else lands in people's site-packages. In the repository these folders stand beside it; `setup.py` moves them."""
