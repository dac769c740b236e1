"""The Content-Security-Policy of the server's responses.

Two sources of the page's policy are wider than its own code needs, because Gradio's page needs them:

    script-src 'unsafe-eval'     `gr.HTML` compiles its template and its script in the browser with `Function`
    style-src 'unsafe-inline'    Gradio's components create <style> elements and style attributes

Inline scripts are listed by their digests, so a script injected into the page's text does not run.
"""

from __future__ import annotations

import base64
import hashlib
import re

# Responses that are not pages (scripts, styles, data). If one is opened as a page, it may load nothing from elsewhere.
ANSWER = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

_SCRIPT = re.compile(r"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.S)
_STYLE = re.compile(r"<style[^>]*>(.*?)</style>", re.S)


def of_the_page(html: str) -> str:
    """The policy of Gradio's page around the editor."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src 'self' 'unsafe-eval' {_digests(_SCRIPT, html)}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            "worker-src 'self'",
            "manifest-src 'self'",
            "base-uri 'self'",  # Gradio's page has <base href="./">
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


def of_a_plain_page(html: str) -> str:
    """The policy of a self-contained page with a form for this server."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {_digests(_SCRIPT, html)}",
            f"style-src {_digests(_STYLE, html)}",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        ]
    )


def _digests(inline: re.Pattern[str], html: str) -> str:
    digests = (hashlib.sha256(match[1].encode()).digest() for match in inline.finditer(html))
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
