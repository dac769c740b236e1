"""Caches which tries passed the check, by the SHA-256 of their bytes, so that a large store is checked only when it is
written here, or first opened.

The file's own checksums cannot take the place of this: its author chose them. Hashing takes a fiftieth of the time of
the check. The digest of the trie of Polydraft's own store is listed here, so
it is not checked on the user's machine.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import platformdirs

from core.ngram.trie_check import check_trie

SHIPPED = "4f98b950b52a3165bf3263b300ad401557202021ad04db84f9805bb8970d7552"  # in assets/base.ngram
LARGE = 1 << 20  # bytes; the check of a smaller trie takes less than a tenth of a second and is repeated

log = logging.getLogger(__name__)


def check_once(trie: memoryview, longest: int) -> None:
    """Checks a trie unless one with the same bytes and limit passed before; see `check_trie`. Raises Malformed."""
    if len(trie) < LARGE:
        check_trie(trie, longest)
        return
    digest = hashlib.sha256(trie).hexdigest()
    mark = platformdirs.user_cache_path("polydraft") / "tries" / f"{digest}-{longest}"
    if digest == SHIPPED or _is_ours(mark):
        return
    check_trie(trie, longest)
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch(mode=0o600)
    except OSError as error:
        log.warning("The check of the n-gram store could not be remembered, so the next start repeats it: %s", error)


def _is_ours(path: Path) -> bool:
    """Whether the file exists and belongs to this user."""
    try:
        owner = path.stat().st_uid
    except OSError:  # the same cause is reported when the mark is written
        return False
    return not hasattr(os, "getuid") or owner == os.getuid()
