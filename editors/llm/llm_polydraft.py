"""A plugin of LLM (https://llm.datasette.io): `llm -m polydraft TEXT` prints the drafts of a running Polydraft.

Each draft is one line, the best first. The stored response, `llm logs --json`, contains the server's whole answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import llm
import openai
from pydantic import Field

URL = "http://127.0.0.1:7893"
NO_TOKEN = "none"  # the client requires a key, even if the server does not


@llm.hookimpl
def register_models(register: Callable[[llm.KeyModel], None]) -> None:
    register(Polydraft())


class Polydraft(llm.KeyModel):
    """The drafts of a running Polydraft. They continue the prompt as a text: there are no turns and no instructions."""

    model_id = "polydraft"
    needs_key = "polydraft"
    key_env_var = "POLYDRAFT_TOKEN"
    supports_conversation = False

    class Options(llm.Options):  # pyright: ignore[reportIncompatibleVariableOverride] every plugin does so
        k: int = Field(3, ge=1, le=9, description="Number of drafts")
        length: int = Field(16, ge=1, le=32, description="Maximum number of tokens in a draft")
        temperature: float | None = Field(None, ge=0, description="Temperature of sampled drafts, and before a rule")
        mode: str | None = Field(None, description="Method of drafting: superposed, sampled, beam, …")
        rule: str | None = Field(None, description="Sampling rule: top-w, min-p, …")
        seed: int | None = Field(None, description="Seed of sampled drafts")
        url: str = Field(URL, description="Address of the server")

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: Any, key: str | None
    ) -> Iterator[str]:
        """Yields the drafts, one per line."""
        if prompt.system:
            raise llm.ModelError("Polydraft continues a text and takes no system prompt. Leave it out.")
        options: Any = prompt.options
        with openai.OpenAI(base_url=f"{options.url.rstrip('/')}/v1", api_key=key or NO_TOKEN, max_retries=0) as client:
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
                raise llm.ModelError(f"No Polydraft responds at {options.url}. Start it: polydraft serve") from None
            except openai.APIStatusError as error:
                raise llm.ModelError(message_of(error)) from None
        response.response_json = answer.model_dump()
        if answer.usage is not None:
            response.set_usage(input=answer.usage.prompt_tokens, output=answer.usage.completion_tokens)
        yield "\n".join(choice.text for choice in answer.choices if choice.text)


def message_of(error: openai.APIStatusError) -> str:
    """Returns the server's message, or a remedy for a wrong token."""
    if error.status_code in (401, 403):
        return f'{error.status_code}: the token is wrong. Set it: llm keys set polydraft --value "$(polydraft token)"'
    body = error.body if isinstance(error.body, dict) else {}
    return str(body.get("message") or error.message)
