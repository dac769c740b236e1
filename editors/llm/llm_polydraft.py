"""A plugin of LLM (https://llm.datasette.io): `llm -m polydraft TEXT` prints the drafts of a running Polydraft.

Text and token go only to a Polydraft of the same user. Every user of a machine can listen at a free port; a running
Polydraft holds a lock on a file in its user's data folder, which other users cannot access.

Each draft is one line, the best first. The stored response, `llm logs --json`, contains the server's whole answer.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import llm
import openai
import platformdirs
from pydantic import Field

try:
    import fcntl
except ImportError:  # Windows, where a Polydraft cannot be told from another program
    fcntl = None

PORT = 7893


@llm.hookimpl
def register_models(register: Callable[[llm.Model], None]) -> None:
    register(Polydraft())


class Polydraft(llm.Model):
    """The drafts of a running Polydraft. They continue the prompt as a text: there are no turns and no instructions."""

    model_id = "polydraft"
    supports_conversation = False

    class Options(llm.Options):  # pyright: ignore[reportIncompatibleVariableOverride] every plugin does so
        k: int = Field(3, ge=1, le=9, description="Number of drafts")
        length: int = Field(16, ge=1, le=32, description="Maximum number of tokens in a draft")
        temperature: float | None = Field(None, ge=0, description="Temperature of sampled drafts, and before a rule")
        mode: str | None = Field(None, description="Method of drafting: superposed, sampled, beam, …")
        rule: str | None = Field(None, description="Sampling rule: top-w, min-p, …")
        seed: int | None = Field(None, description="Seed of sampled drafts")
        port: int = Field(PORT, ge=1, le=65535, description="Port of the server")

    def execute(self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: Any) -> Iterator[str]:
        """Yields the drafts, one per line."""
        if prompt.system:
            raise llm.ModelError("Polydraft continues a text and takes no system prompt. Leave it out.")
        options: Any = prompt.options
        address, token = f"http://127.0.0.1:{options.port}/v1", token_for(options.port)
        direct = openai.DefaultHttpxClient(trust_env=False)  # a proxy would receive the token, too
        with openai.OpenAI(base_url=address, api_key=token, max_retries=0, http_client=direct) as client:
            try:
                answer = client.completions.create(
                    model=self.model_id,
                    prompt=prompt.prompt,
                    n=options.k,
                    max_tokens=options.length,
                    **{
                        name: value for name in ("temperature", "seed") if (value := getattr(options, name)) is not None
                    },
                    extra_body={name: value for name in ("mode", "rule") if (value := getattr(options, name))},
                )
            except openai.APIConnectionError:
                raise llm.ModelError(f"Polydraft does not respond at port {options.port}.") from None
            except openai.APIStatusError as error:
                raise llm.ModelError(message_of(error)) from None
        response.response_json = answer.model_dump()
        if answer.usage is not None:
            response.set_usage(input=answer.usage.prompt_tokens, output=answer.usage.completion_tokens)
        yield "\n".join(choice.text for choice in answer.choices if choice.text)


def token_for(port: int) -> str:
    """Returns the token of this user's Polydraft at the port. Raises ModelError if there is none."""
    folder = Path(platformdirs.user_data_path("polydraft", appauthor=False))
    try:
        with (folder / f"running-{platform.node()}-{port}").open() as file:
            if not is_locked(file):
                raise FileNotFoundError
        return (folder / "token").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise llm.ModelError(f"No Polydraft of yours runs at port {port}. Start it: polydraft serve") from None


def is_locked(file: IO[str]) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    return False


def message_of(error: openai.APIStatusError) -> str:
    """Returns the server's message, or a remedy for a token that was replaced."""
    if error.status_code == 401:
        return "401: the token was replaced while Polydraft ran. Restart it."
    body = error.body if isinstance(error.body, dict) else {}
    return str(body.get("message") or error.message)
