"""Gradio's theme in the colours, sizes and fonts of the page.

The colours are the variables of page.css, which change between light and dark; so both halves of the theme are one.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping

from gradio.themes import Base
from gradio.themes.utils import sizes

SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Consolas", "monospace")

# The editor's background, in page.css too: also the window's while the page loads.
PAPER, PAPER_DARK = "#fbfaf6", "#17181a"

# By their values, the names of what has them in the theme.
_COLOURS = {
    "var(--ink)": (
        "body_text_color block_title_text_color checkbox_label_text_color checkbox_label_text_color_selected "
        "button_secondary_text_color button_secondary_text_color_hover"
    ),
    "var(--soft)": (
        "body_text_color_subdued block_label_text_color block_info_text_color input_border_color_hover "
        "button_secondary_border_color_hover"
    ),
    "var(--paper)": (
        "background_fill_primary background_fill_secondary input_background_fill input_background_fill_focus "
        "checkbox_background_color checkbox_background_color_focus"
    ),
    "var(--line)": "border_color_primary",
    "var(--accent)": (
        "border_color_accent color_accent link_text_color input_border_color_focus "
        "checkbox_background_color_selected checkbox_border_color_selected checkbox_border_color_focus "
        "checkbox_label_border_color_selected slider_color"
    ),
    "var(--accent-wash)": "color_accent_soft checkbox_label_background_fill_selected",
    "transparent": (
        "block_background_fill panel_background_fill checkbox_label_background_fill button_secondary_background_fill"
    ),
    "var(--wash)": (
        "input_background_fill_hover checkbox_label_background_fill_hover button_secondary_background_fill_hover"
    ),
    "var(--edge-line)": (
        "input_border_color checkbox_border_color checkbox_label_border_color button_secondary_border_color"
    ),
    "var(--ghost)": "input_placeholder_color",
}
_SIZES = {
    "0px": "block_border_width block_padding form_gap_width",
    "none": "block_shadow input_shadow checkbox_label_shadow button_secondary_shadow",
    "var(--ui)": "block_title_text_size input_text_size checkbox_label_text_size button_small_text_size",
    "600": "block_title_text_weight",
    "calc(var(--ui) * 0.9)": "block_info_text_size",
    "1px": "input_border_width checkbox_label_border_width button_border_width",
    "6px 8px": "input_padding",
    "8px": "input_radius button_small_radius",
    "5px 10px": "checkbox_label_padding button_small_padding",
    "6px": "checkbox_label_gap",
    "400": "button_small_text_weight",
    "10px": "layout_gap",
}


def _each(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((name, value) for value, names in values.items() for name in names.split())


def theme() -> Base:
    made = Base(font=SANS, font_mono=MONO, spacing_size=sizes.spacing_sm, radius_size=sizes.radius_md)
    known = inspect.signature(made.set).parameters
    both = {name + half: value for name, value in _each(_COLOURS) for half in ("", "_dark") if name + half in known}
    return made.set(body_background_fill=PAPER, body_background_fill_dark=PAPER_DARK, **both, **_SIZES)
