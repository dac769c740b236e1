"""Gradio's theme in the colours, sizes and fonts of the page.

The colours are the variables of page.css, which change between light and dark; so both halves of the theme are one.
"""

from __future__ import annotations

import inspect

from gradio.themes import Base
from gradio.themes.utils import sizes

SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Consolas", "monospace")

# The editor's background, in page.css too: also the window's while the page loads.
PAPER, PAPER_DARK = "#fbfaf6", "#17181a"

_COLOURS = {
    "body_text_color": "var(--ink)",
    "body_text_color_subdued": "var(--soft)",
    "background_fill_primary": "var(--paper)",
    "background_fill_secondary": "var(--paper)",
    "border_color_primary": "var(--line)",
    "border_color_accent": "var(--accent)",
    "color_accent": "var(--accent)",
    "color_accent_soft": "var(--accent-wash)",
    "link_text_color": "var(--accent)",
    "block_background_fill": "transparent",
    "block_label_text_color": "var(--soft)",
    "block_title_text_color": "var(--ink)",
    "block_info_text_color": "var(--soft)",
    "panel_background_fill": "transparent",
    "input_background_fill": "var(--paper)",
    "input_background_fill_focus": "var(--paper)",
    "input_background_fill_hover": "var(--wash)",
    "input_border_color": "var(--edge-line)",
    "input_border_color_focus": "var(--accent)",
    "input_border_color_hover": "var(--soft)",
    "input_placeholder_color": "var(--ghost)",
    "checkbox_background_color": "var(--paper)",
    "checkbox_background_color_selected": "var(--accent)",
    "checkbox_background_color_focus": "var(--paper)",
    "checkbox_border_color": "var(--edge-line)",
    "checkbox_border_color_selected": "var(--accent)",
    "checkbox_border_color_focus": "var(--accent)",
    "checkbox_label_background_fill": "transparent",
    "checkbox_label_background_fill_hover": "var(--wash)",
    "checkbox_label_background_fill_selected": "var(--accent-wash)",
    "checkbox_label_border_color": "var(--edge-line)",
    "checkbox_label_border_color_selected": "var(--accent)",
    "checkbox_label_text_color": "var(--ink)",
    "checkbox_label_text_color_selected": "var(--ink)",
    "slider_color": "var(--accent)",
    "button_secondary_background_fill": "transparent",
    "button_secondary_background_fill_hover": "var(--wash)",
    "button_secondary_border_color": "var(--edge-line)",
    "button_secondary_border_color_hover": "var(--soft)",
    "button_secondary_text_color": "var(--ink)",
    "button_secondary_text_color_hover": "var(--ink)",
}
_SIZES = {
    "block_border_width": "0px",
    "block_padding": "0px",
    "block_shadow": "none",
    "block_title_text_size": "var(--ui)",
    "block_title_text_weight": "600",
    "block_info_text_size": "calc(var(--ui) * 0.9)",
    "input_border_width": "1px",
    "input_text_size": "var(--ui)",
    "input_padding": "6px 8px",
    "input_radius": "8px",
    "input_shadow": "none",
    "checkbox_label_border_width": "1px",
    "checkbox_label_padding": "5px 10px",
    "checkbox_label_gap": "6px",
    "checkbox_label_text_size": "var(--ui)",
    "checkbox_label_shadow": "none",
    "button_small_padding": "5px 10px",
    "button_small_radius": "8px",
    "button_small_text_size": "var(--ui)",
    "button_small_text_weight": "400",
    "button_border_width": "1px",
    "button_secondary_shadow": "none",
    "form_gap_width": "0px",
    "layout_gap": "10px",
}


def theme() -> Base:
    made = Base(font=SANS, font_mono=MONO, spacing_size=sizes.spacing_sm, radius_size=sizes.radius_md)
    known = inspect.signature(made.set).parameters
    both = {name + half: value for name, value in _COLOURS.items() for half in ("", "_dark") if name + half in known}
    return made.set(body_background_fill=PAPER, body_background_fill_dark=PAPER_DARK, **both, **_SIZES)
