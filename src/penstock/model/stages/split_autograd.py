"""The backward of any module in two parts: the input's gradient now, the weights' when asked for.

Autograd computes both in one pass. To part them, its graph is walked from the output: a node that
leads both to the input and, past a branch that does not, to a parameter is a fork. The first pass
goes to the input alone and notes the gradient that reaches each fork; the second starts at the
forks and goes down the other branches only, so that nothing is computed twice.

    out -> multiply -> fork -> ... -> input           first pass
                         +---> transpose -> weight    second pass

A parameter that hangs on several forks would be reached through the lower ones again, and one that
hangs on none is reached by no second pass: both are computed in the first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.nn import Parameter


@dataclass(eq=False)
class Fork:
    """A node at which the way to some parameters leaves the way to the input."""

    node: Node
    parameters: list[Parameter]
    gradients: tuple[Tensor | None, ...] = ()
    """What reached the node in the first pass; nothing where it was not reached."""

    def note(self, gradients: tuple[Tensor | None, ...]) -> None:
        self.gradients = gradients


@dataclass(eq=False)
class _Graph:
    """The nodes below some outputs, and which of them lead where."""

    outputs: Sequence[Node]
    inputs: frozenset[Node]
    parameter_of: dict[Node, Parameter]
    below: dict[Node, tuple[Node, ...]] = field(default_factory=dict)
    """Nodes that each node hands gradients to; the lower ones come first."""
    entered: set[Node] = field(default_factory=set)
    """Nodes that lead to an input."""

    def __post_init__(self) -> None:
        for node in _upwards(self.outputs):
            self.below[node] = _next(node)
            if node in self.inputs or any(below in self.entered for below in self.below[node]):
                self.entered.add(node)

    def forks(self) -> list[Fork]:
        """The forks whose parameters hang on no other fork."""
        found = {node: self._beside(node) for node in self.below if node in self.entered}
        hung: dict[Parameter, int] = {}
        for parameters in found.values():
            for parameter in parameters:
                hung[parameter] = hung.get(parameter, 0) + 1
        own = {n: [p for p in parameters if hung[p] == 1] for n, parameters in found.items()}
        return [Fork(node, parameters) for node, parameters in own.items() if parameters]

    def _beside(self, fork: Node) -> list[Parameter]:
        """Parameters below a node that can be reached without a node that leads to the input."""
        waiting = [node for node in self.below[fork] if node not in self.entered]
        seen = dict.fromkeys(waiting)
        while waiting:
            new = [node for node in self.below[waiting.pop()] if node not in seen]
            seen |= dict.fromkeys(new)
            waiting += new
        return [self.parameter_of[node] for node in seen if node in self.parameter_of]


def backward_to_input(
    outputs: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    entries: Sequence[Tensor],
    parameters: Iterable[Parameter],
) -> tuple[Sequence[Tensor | None], list[Fork]]:
    """The gradients of `entries`, and what `backward_to_weights` needs.

    Gradients of parameters that no fork has to itself are added at once.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    edges = {get_gradient_edge(parameter).node: parameter for parameter in trained}
    inputs = frozenset(get_gradient_edge(entry).node for entry in entries)
    graph = _Graph([get_gradient_edge(output).node for output in outputs], inputs, edges)
    forks = graph.forks()
    put_off = {parameter for fork in forks for parameter in fork.parameters}
    at_once = [parameter for parameter in trained if parameter not in put_off]
    handles = [fork.node.register_prehook(fork.note) for fork in forks]
    try:
        found = torch.autograd.grad(
            outputs,
            (*entries, *at_once),
            gradients,
            retain_graph=bool(forks),
            allow_unused=True,
        )
    finally:
        for handle in handles:
            handle.remove()
    _add(at_once, found[len(entries) :])
    return found[: len(entries)], forks


def backward_to_weights(forks: Sequence[Fork]) -> None:
    """Add the gradients that were put off, and let go of what they needed."""
    for fork in forks:
        reached = [(i, g) for i, g in enumerate(fork.gradients) if g is not None]
        if reached:
            found = torch.autograd.grad(
                [GradientEdge(fork.node, i) for i, _ in reached],
                fork.parameters,
                [g for _, g in reached],
                allow_unused=True,
            )
            _add(fork.parameters, found)
        fork.gradients = ()


def _add(parameters: Sequence[Parameter], gradients: Sequence[Tensor | None]) -> None:
    for parameter, gradient in zip(parameters, gradients):
        if parameter.grad is None:
            parameter.grad = gradient
        elif gradient is not None:
            parameter.grad.add_(gradient)


def _upwards(tops: Sequence[Node]) -> Iterator[Node]:
    """Every node below and with `tops`, each after all that it hands gradients to."""
    seen: set[Node] = set()
    for top in tops:
        ways: list[tuple[Node, Any]] = [] if top in seen else [(top, iter(_next(top)))]
        seen.add(top)
        while ways:
            node, below = ways[-1]
            new = next((found for found in below if found not in seen), None)
            if new is None:
                ways.pop()
                yield node
            else:
                seen.add(new)
                ways.append((new, iter(_next(new))))


def _next(node: Node) -> tuple[Node, ...]:
    return tuple(below for below, _ in node.next_functions if below is not None)
