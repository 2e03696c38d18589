"""Verbs that run something need torch, which the rest of Penstock does without."""

from penstock.errors import ShapeError


def need_torch() -> None:
    """Refuse with a hint where torch is not installed."""
    try:
        import penstock.model.stages.stage  # noqa: F401 - the least that needs torch
    except ModuleNotFoundError as error:
        raise ShapeError(
            f"running needs {error.name}, which is not installed",
            hint="pip install 'penstock[run]'",
        ) from None
