"""Other programs: OpenAI's interface, llama-server's, and the language server."""
