"""Option groups for verbs: a dataclass parameter becomes the options of its fields.

Six verbs share a dozen options. Written out, every verb would repeat them in a signature of
fifteen parameters, and the copies would drift. So a group of options is a dataclass whose fields
are annotated for typer, a verb takes the group as one parameter, and `flat` shows typer the fields.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def flat(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with each dataclass parameter replaced by one keyword parameter per field."""
    hints = get_type_hints(verb, include_extras=True)
    signature = inspect.signature(verb)
    groups = {name: hints[name] for name in signature.parameters if is_dataclass(hints[name])}

    @wraps(verb)
    def run(**given: Any) -> None:
        verb(**{name: _gather(group, given) for name, group in groups.items()}, **given)

    parameters = [
        flattened
        for parameter in signature.parameters.values()
        for flattened in _expand(parameter, hints[parameter.name])
    ]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _gather(group: Any, given: dict[str, Any]) -> Any:
    """The dataclass made of its own values, which leave `given`."""
    return group(**{field.name: given.pop(field.name) for field in fields(group)})


def _expand(parameter: inspect.Parameter, hint: Any) -> list[inspect.Parameter]:
    if not is_dataclass(hint):
        return [parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY)]
    annotations: Mapping[str, Any] = get_type_hints(hint, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=annotations[field.name],
        )
        for field in fields(hint)
    ]
