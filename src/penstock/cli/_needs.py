"""Verbs that run something need packages which the rest of Penstock does without."""

from importlib import import_module

from penstock.errors import ShapeError


def need_torch() -> None:
    """Refuse with a hint where torch is not installed."""
    _need("penstock.model.stages.stage", "running")  # the least that needs torch


def need_pydantic() -> None:
    """Refuse with a hint where pydantic, which reads configurations, is not installed."""
    _need("penstock.train.config.settings", "reading a configuration")


def _need(module: str, work: str) -> None:
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        raise ShapeError(
            f"{work} needs {error.name}, which is not installed",
            hint="pip install 'penstock[run]'",
        ) from None
