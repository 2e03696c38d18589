"""Words in a drawing of numbers."""

from html import escape


def label(
    x: float, y: float, text: str, *, anchor: str = "middle", size: int = 11, ink: str = "#222222"
) -> str:
    """Text at a place, as SVG."""
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" fill="{ink}"'
    return f"<text {place}>{escape(text)}</text>"
