"""How every figure behaves in the browser."""

from __future__ import annotations

from typing import Final

# Plotly's configuration: a figure has its own buttons, and is not zoomed or dragged by accident.
PLOTLY: Final = {"displayModeBar": False, "scrollZoom": False, "doubleClick": False, "showTips": False}
