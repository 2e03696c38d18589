"""The page of models shows the presets that there are."""

from pathlib import Path

from penstock.arch.config import ModelConfig
from penstock.arch.presets import MODELS

PAGE = Path(__file__).parents[2] / "docs/reference/models.md"


def row(name: str, config: ModelConfig) -> str:
    cells = (
        *(f"`{name}`", config.layers, config.hidden, f"{config.heads} / {config.kv_heads}"),
        *(config.head_size, config.vocabulary, config.max_positions, f"{config.parameters:,}"),
    )
    return f"| {' | '.join(map(str, cells))} |"


def test_the_table_of_presets_is_complete_and_right() -> None:
    table = PAGE.read_text().split("<!-- presets -->")[1].split("<!-- end -->")[0]
    found = table.strip().splitlines()[2:]
    assert found == [row(name, config) for name, config in MODELS.items()]
