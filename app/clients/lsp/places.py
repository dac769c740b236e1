"""The places of a text that get drafts: everywhere in prose, and comments in programming languages.

Pygments finds the comments. It reads only a window around the caret, so drafts in a long file are not delayed.
"""

from __future__ import annotations

from pygments.lexer import Lexer
from pygments.lexers import find_lexer_class_for_filename, get_lexer_by_name
from pygments.token import Comment, String
from pygments.util import ClassNotFound

from app.clients.lsp.settings import ALL, EditorSettings

BEFORE, AFTER = 65_536, 8_192  # characters around the caret that Pygments reads
PROBE = "x"


def is_prose(language: str, settings: EditorSettings) -> bool:
    return language in settings.prose_languages or ALL in settings.prose_languages


def in_comment(text: str, caret: int, language: str, path: str) -> bool:
    """Whether a letter typed at the caret would belong to a comment or a documentation string.

    Args:
        language: the editor's identifier of the language. If Pygments has no lexer for it, the file's name decides.
    """
    lexer = _lexer(language, path)
    if lexer is None:
        return False
    start = text.rfind("\n", 0, max(caret - BEFORE, 0)) + 1
    window = text[start:caret] + PROBE + text[caret : caret + AFTER] + "\n"
    for at, kind, value in lexer.get_tokens_unprocessed(window.replace("\r", " ")):
        if at + len(value) > caret - start:
            return kind in String.Doc or (kind in Comment and kind not in Comment.Preproc)
    return False


def _lexer(language: str, path: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language)
    except ClassNotFound:
        lexer = find_lexer_class_for_filename(path)
        return None if lexer is None else lexer()
