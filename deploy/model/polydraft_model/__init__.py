"""The default model's file, SmolLM2-135M-Instruct.Q4_1.gguf, and its digest. Polydraft finds the file without importing
this package."""
