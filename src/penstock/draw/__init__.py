"""Pictures of timelines: text, SVG, a page to explore, a trace for viewers."""
