"""The Hugging Face Hub: what names a model there, and its download. Nothing else in `core` connects anywhere."""
