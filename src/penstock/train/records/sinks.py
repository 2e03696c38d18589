"""Where the records of a run go: files always, TensorBoard and Weights & Biases where asked.

One process of a run holds them, the one that has the loss. A sink that is missing its package is
refused when the run starts, not when the first record is lost.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from penstock.errors import RunError
from penstock.files.durable import write_file
from penstock.train.config.save import tables
from penstock.train.config.settings import Settings
from penstock.train.records.metrics import (
    METRICS,
    PLANS,
    TIMING,
    Lines,
    Metrics,
    PlanRecord,
    Timing,
)


class Sink(Protocol):
    """Something that is told about every step."""

    def metrics(self, record: Metrics) -> None: ...

    def timing(self, record: Timing) -> None: ...

    def plan(self, record: PlanRecord) -> None: ...

    def sync(self) -> None:
        """Return once what was told is safe; called before a checkpoint counts."""
        ...

    def close(self) -> None: ...


class FileSink:
    """`metrics.jsonl` and `timing.jsonl` in the run's folder."""

    def __init__(self, folder: Path, done: int) -> None:
        self._metrics = Lines(folder / METRICS, done)
        self._timing = Lines(folder / TIMING, done)

    def metrics(self, record: Metrics) -> None:
        self._metrics.write(record)

    def timing(self, record: Timing) -> None:
        self._timing.write(record)

    def plan(self, record: PlanRecord) -> None:
        return None  # a file of its own has it, where plans may change

    def sync(self) -> None:
        self._metrics.sync()
        self._timing.sync()

    def close(self) -> None:
        self._metrics.close()
        self._timing.close()


class PlanSink:
    """`plans.jsonl` in the run's folder."""

    def __init__(self, folder: Path, done: int) -> None:
        self._plans = Lines(folder / PLANS, done)

    def metrics(self, record: Metrics) -> None:
        return None

    def timing(self, record: Timing) -> None:
        return None

    def plan(self, record: PlanRecord) -> None:
        self._plans.write(record)

    def sync(self) -> None:
        self._plans.sync()

    def close(self) -> None:
        self._plans.close()


class TensorBoardSink:
    """Scalars for TensorBoard; what an interrupted run wrote behind the checkpoint is hidden."""

    def __init__(self, folder: Path, done: int) -> None:
        with _needed("tensorboard", "log"):
            board = import_module("torch.utils.tensorboard")
        self._writer = board.SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1)

    def metrics(self, record: Metrics) -> None:
        self._add(record.step, scalars(record))

    def timing(self, record: Timing) -> None:
        self._add(record.step, scalars(record))

    def plan(self, record: PlanRecord) -> None:
        self._writer.add_text("plan", f"{record.plan}: {record.why}", record.step)

    def _add(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def sync(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbSink:
    """A run of a Weights & Biases project; the same folder goes on with the same run."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        with _needed("wandb", "wandb"):
            wandb = import_module("wandb")
        self._run = wandb.init(
            project=settings.log.wandb,
            name=folder.name,
            id=_identity(folder),
            resume="allow",
            dir=str(folder),
            config=tables(settings),
        )

    def metrics(self, record: Metrics) -> None:
        self._run.log(scalars(record), step=record.step)

    def timing(self, record: Timing) -> None:
        self._run.log(scalars(record), step=record.step)

    def plan(self, record: PlanRecord) -> None:
        return None  # it takes no second record of a step; the files have it

    def sync(self) -> None:
        return None  # it sends on its own; the files are what counts

    def close(self) -> None:
        self._run.finish()


class Sinks:
    """Several sinks as one."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)

    def metrics(self, record: Metrics) -> None:
        self._each(lambda sink: sink.metrics(record))

    def timing(self, record: Timing) -> None:
        self._each(lambda sink: sink.timing(record))

    def plan(self, record: PlanRecord) -> None:
        self._each(lambda sink: sink.plan(record))

    def sync(self) -> None:
        self._each(lambda sink: sink.sync())

    def close(self) -> None:
        self._each(lambda sink: sink.close())

    def _each(self, tell: Callable[[Sink], None]) -> None:
        for sink in self._sinks:
            tell(sink)


def open_sinks(settings: Settings, done: int) -> Sinks:
    """The sinks of a run that goes on after `done` steps."""
    folder = Path(settings.run.directory)
    sinks: list[Sink] = [FileSink(folder, done)]
    if settings.plan.policy != "fixed":
        sinks.append(PlanSink(folder, done))
    if settings.log.tensorboard:
        sinks.append(TensorBoardSink(folder, done))
    if settings.log.wandb:
        sinks.append(WandbSink(settings, folder))
    return Sinks(sinks)


def scalars(record: Metrics | Timing) -> dict[str, float]:
    """The numbers of a record by name; the largest where there is one for each device."""
    values = {name: value for name, value in asdict(record).items() if value is not None}
    values.pop("step")
    return {
        name: float(max(value, default=0) if isinstance(value, tuple) else value)
        for name, value in values.items()
        if name not in ("time", "plan")
    }


def _identity(folder: Path) -> str:
    """A name for the run that stays when it goes on: kept in its folder."""
    path = folder / "wandb-run"
    if not path.exists():
        write_file(path, token_hex(8).encode())
    return path.read_text()


@contextmanager
def _needed(key: str, extra: str) -> Iterator[None]:
    """What a key needs is imported inside; the error says where to get it."""
    try:
        yield
    except ImportError as error:
        raise RunError(
            f"log.{key} needs a package that is not installed: {error}",
            hint=f"pip install 'penstock[{extra}]', or leave the key out",
        ) from None
