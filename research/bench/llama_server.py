"""Starts llama-cpp-python's server for `bench serve`, with its own command line, and without the code for AMX.

That code of llama.cpp crashes on processors with AMX; `core.models.llamacpp` switches it off in the same way.
"""

from __future__ import annotations

from typing import Any

from llama_cpp import llama_cpp as binding
from llama_cpp.server import __main__ as server


def without_amx(defaults: Any = binding.llama_model_default_params) -> Any:
    parameters = defaults()
    parameters.use_extra_bufts = False
    return parameters


if __name__ == "__main__":
    binding.llama_model_default_params = without_amx
    server.main()
