"""llama-cpp-python's server as `bench serve` starts it: with its own command line, and without the code for AMX.

On processors with AMX that code of llama.cpp crashes (`core.models.llamacpp`); the figures are the same without it.
"""

from __future__ import annotations

from typing import Any

import llama_cpp.llama
from llama_cpp.server import __main__ as server


def without_amx(made: Any = llama_cpp.llama.llama_cpp.llama_model_default_params) -> Any:
    parameters = made()
    parameters.use_extra_bufts = False
    return parameters


if __name__ == "__main__":
    llama_cpp.llama.llama_cpp.llama_model_default_params = without_amx
    server.main()
