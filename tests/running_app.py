"""The app in a process of its own, as a person starts it; and free ports of this machine."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.request import Request


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class RunningApp:
    url: str  # as printed, with the token
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, *arguments: str, environment: Mapping[str, str] | None = None) -> RunningApp:
        """Runs Python with arguments that start the app, and returns once its model is loaded."""
        process = subprocess.Popen(
            [sys.executable, "-u", *arguments],
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout
        try:
            line = process.stdout.readline()
            found = re.fullmatch(r"Polydraft is at (http://127\.0\.0\.1:\d+/\?token=[\w-]+)\n", line)
            assert found, line
            app = cls(found[1], process)
            deadline = time.monotonic() + 150
            while not app.get("/api/status")["ready"]:  # the page answers before the model is there
                assert time.monotonic() < deadline, "the model is not loaded after 150 s"
                time.sleep(0.2)
        except BaseException as error:
            process.kill()
            error.add_note(process.communicate()[0])
            raise
        return app

    @property
    def host(self) -> str:
        return self.url.split("/")[2]

    def get(self, path: str) -> Any:
        """The response to a request that needs the token."""
        headers = {"Authorization": f"Bearer {self.url.partition('?token=')[2]}"}
        with urllib.request.urlopen(Request(f"http://{self.host}{path}", headers=headers), timeout=60) as answer:
            return json.load(answer)

    def close(self) -> str:
        """Ends the process; returns its output since the start."""
        self.process.terminate()
        return self.process.communicate(timeout=30)[0]
