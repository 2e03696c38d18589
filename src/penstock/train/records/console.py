"""What a person sees while a run goes on: a bar on a terminal, lines anywhere else.

The loss of a single step jumps about, so the mean of the last ones is shown. Words go to stderr;
stdout stays free for data.
"""

from collections import deque
from time import monotonic
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from penstock.terminal import printable, say_to

MEAN_OVER = 10
"""Steps over which the shown loss is a mean."""


class Means:
    """The mean loss of the last steps."""

    def __init__(self, count: int = MEAN_OVER) -> None:
        self._last: deque[float] = deque(maxlen=count)

    def add(self, loss: float) -> float:
        self._last.append(loss)
        return sum(self._last) / len(self._last)


class RemainingTime:
    """Seconds that are left, from the pace since the run was started or went on."""

    def __init__(self, done: int, steps: int) -> None:
        self._done, self._steps, self._start = done, steps, monotonic()

    def left(self, step: int) -> float:
        paced = step - self._done
        return (monotonic() - self._start) / paced * (self._steps - step) if paced else 0.0


class Display(Protocol):
    """Something that shows the progress of a run."""

    plan: str
    """The plan in force, where it may change; else nothing."""

    def step(self, step: int, loss: float, tokens_per_second: float) -> None:
        """Show that a step is done; `step` counts it."""
        ...

    def say(self, text: str) -> None:
        """Show words of their own, such as an evaluation or a checkpoint."""
        ...

    def close(self) -> None: ...


class BarDisplay:
    """One line that moves."""

    def __init__(self, steps: int, done: int, stream: TextIO) -> None:
        self._means, self._clock, self.plan = Means(), RemainingTime(done, steps), ""
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
            console=Console(file=stream, highlight=False),
            expand=True,
        )
        self._task: TaskID = self._progress.add_task("", total=steps, completed=done, words="")
        self._progress.start()
        # A process that is ended from the side, because another one fails, could not show it again.
        self._progress.console.show_cursor(True)

    def step(self, step: int, loss: float, tokens_per_second: float) -> None:
        left = self._clock.left(step)
        words = step_words(self._means.add(loss), tokens_per_second, left, self.plan)
        self._progress.update(self._task, completed=step, words=words)

    def say(self, text: str) -> None:
        self._progress.console.print(printable(text), markup=False)

    def close(self) -> None:
        self._progress.stop()


class LineDisplay:
    """A line every few steps, and one for the last."""

    def __init__(self, steps: int, done: int, stream: TextIO, every: int) -> None:
        self._means, self._clock, self.plan = Means(), RemainingTime(done, steps), ""
        self._steps, self._stream, self._every = steps, stream, every

    def step(self, step: int, loss: float, tokens_per_second: float) -> None:
        mean = self._means.add(loss)
        if step % self._every == 0 or step == self._steps:
            words = step_words(mean, tokens_per_second, self._clock.left(step), self.plan)
            self.say(f"step {step}/{self._steps}  {words}")

    def say(self, text: str) -> None:
        say_to(self._stream, text)

    def close(self) -> None:
        self._stream.flush()


def open_display(steps: int, done: int, stream: TextIO, every: int) -> Display:
    """A bar where the stream is a terminal, otherwise a line every so many steps."""
    if stream.isatty():
        return BarDisplay(steps, done, stream)
    return LineDisplay(steps, done, stream, every)


def step_words(loss: float, tokens_per_second: float, left: float, plan: str = "") -> str:
    """What is said of a step, with the plan in force where it may change.

    >>> step_words(2.61234, 54321.0, 75.2)
    'loss 2.6123  54,321 tokens/s  1:15 left'
    >>> step_words(2.61234, 54321.0, 75.2, "1f1b+group2 since step 11")
    'loss 2.6123  54,321 tokens/s  1:15 left  1f1b+group2 since step 11'
    """
    words = f"loss {loss:.4f}  {tokens_per_second:,.0f} tokens/s  {duration(left)} left"
    return f"{words}  {plan}" if plan else words


def duration(seconds: float) -> str:
    """Time as people say it.

    >>> duration(75.2), duration(3675), duration(200000)
    ('1:15', '1:01:15', '2d 7:33:20')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days or hours:
        return (
            f"{days}d {hours}:{minutes:02}:{rest:02}" if days else f"{hours}:{minutes:02}:{rest:02}"
        )
    return f"{minutes}:{rest:02}"
