"""Polydraft in Jupyter's server: the route by which the extension in the browser reaches Polydraft's server."""

from __future__ import annotations

from typing import Any

from .forwarding import add_route

PORT = 7893  # of Polydraft; c.Polydraft.port in Jupyter's configuration changes it


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "polydraft_jupyterlab"}]


def _load_jupyter_server_extension(server: Any) -> None:
    add_route(server.web_app, int(server.config.get("Polydraft", {}).get("port", PORT)))
