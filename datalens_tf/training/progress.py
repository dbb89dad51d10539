"""Progress of a long command: the stages ahead, how far it is, what is spent, and how long it may take.

Methods name their stages to their callbacks; `Progress` is the callback that shows them. Without it nothing is shown,
so a run from Python is silent unless it is given one. Estimates follow from public facts (the settings, the number of
records where neighbours replace one, the images' shape), from how fast this machine computes with numbers that are not
records, and from how fast the present stage has been so far. The pace of the present stage may depend on records, so
everything shown here is only for the holder of the records, and is written to no public file.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, TextIO

from etils import epy

from datalens_tf.training.callbacks import Callback, Stage, StepReport

with epy.lazy_imports():
    from datalens_tf.accounting import accountants

if TYPE_CHECKING:  # Loaded where there is a terminal, or records.
    import tqdm

    from datalens_tf.data.datasets import PublicFacts

FIRST_SECONDS = 3.0  # A command that is refused earlier has said one line.
LINE_SECONDS = 9.5  # between two plain lines, so that it is never silent for ten
_PACE = 0.05  # share of a stage after which the pace so far is better than an estimate
_TICK = 0.25  # seconds, after which the thread looks again


def described(data: PublicFacts, adjacency: str, num_records: int) -> str:
    """Describes what was loaded by public facts: the number of records only where neighbours replace a record."""
    height, width, channels = data.image_shape
    counted = "records" if data.unit is None else "units"
    count = f"{num_records:,} {counted}, " if adjacency == "replace-one" else ""
    return (f"{data.name}: {count}{data.num_classes:,} classes, {height} x {width} "
            f"{'grey' if channels == 1 else 'colour'}")


@functools.lru_cache
def machine_speed() -> float:
    """Billions of multiplications and additions per second, measured undisturbed on products of fixed matrices."""
    import numpy as np

    matrix = np.full((384, 384), 0.5, np.float32)
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - start)
    return 2 * 384**3 / 1e9 / sorted(seconds)[1]


def duration(seconds: float) -> str:
    """A time in words, never shorter than it is: `40 s`, `3 min`, `2 h 5 min`."""
    whole = max(1, int(seconds + 0.999))
    if whole < 100:
        return f"{whole} s"
    minutes = -(-whole // 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


@dataclasses.dataclass
class _Part:
    """Everything known about a stage; times are those of the clock."""

    stage: Stage
    estimate: float | None = None
    seconds: float = 0.0
    since: float | None = None  # None while it is not the present one
    count: int = 1
    whole: int = 0
    done: float = 0.0
    begun: tuple[float, float] = (0.0, 0.0)  # how far it was when it began, and when
    first: tuple[float, float] | None = None  # the same of the first report: the time before it may go into compiling
    heard: float = 0.0  # when it was last heard of
    what: str = ""
    epsilon: float | None = None


class Progress(Callback):
    """Shows stages: one bar for each on a terminal, a plain line about every ten seconds otherwise.

    As a context manager it also shows, by a thread, that time passes while nothing is reported.

    Args:
      epsilon: the target; None where nothing is private, or none is known.
      stream: where to show; None for the standard error of the moment.
      detail: `quiet` shows nothing, `normal` is as above, `verbose` writes a plain line for everything reported.
      log_file: gets the plain lines of `verbose` as well. They tell how long things took, which may depend on records,
        so the file is only for the holder of the records.
      clock: function that returns the time in seconds.

    Example:
      >>> from datalens_tf.training.progress import Progress
      >>> with Progress(detail="quiet") as progress:
      ...     print(list(progress.watched(range(3), "trials")))
      [0, 1, 2]
    """

    def __init__(self, epsilon: float | None = None, stream: TextIO | None = None, *, detail: str = "normal",
                 log_file: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        self.epsilon = epsilon
        self._stream, self._detail, self._log, self._clock = stream or sys.stderr, detail, log_file, clock
        self._parts: list[_Part] = []
        self._now: _Part | None = None
        self._start = clock()
        self._last_line: float | None = None
        self._last_text = ""  # the last plain line, so that no line repeats it
        self._last_told: float | None = None
        self._heading: list[str] = []
        self._bar: tqdm.tqdm | None = None
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._leave()
            if error[0] is None and self._last_line is not None:
                self._write(f"done: {self._summary()}")

    def on_plan(self, about: str, stages: Sequence[Stage]) -> None:
        with self._lock:
            known = {part.stage.name: part for part in self._parts}
            self._parts = [known.pop(stage.name, _Part(stage)) for stage in stages]
            for part, stage in zip(self._parts, stages):
                part.stage = stage
                part.estimate = None if stage.work is None else stage.work / machine_speed()
            self._parts = [*known.values(), *self._parts]
            self._heading = [about, "stages: " + ", ".join(map(_announced, self._parts))]
            if self._detail != "normal" or (self._last_line is not None and not self._draws()):
                self._flush_heading()

    def on_stage(self, name: str, parts: int = 1, done: int = 0) -> None:
        with self._lock:
            # A stage may begin again: a method names it, and then the loop in it. Its estimate still holds.
            estimate = None if self._now is None or self._now.stage.name != name else self._now.estimate
            self._leave()
            found = [part for part in self._parts if part.stage.name == name]
            if not found:
                found = [_Part(Stage(name, charged=True))]
                self._parts += found
            self._now = part = found[0]
            part.estimate = part.estimate or estimate
            part.since, part.count, part.whole, part.done = self._clock(), parts, done, done / parts
            part.begun, part.first, part.what = (part.done, part.since), None, ""
            self._told(name)
            self.tick()

    def on_progress(self, what: str, fraction: float) -> None:
        with self._lock:
            if self._now is not None:
                self._far(f"{what}, {fraction:.0%}" if self._now.count > 1 and 0 < fraction < 1 else what,
                          (self._now.whole + fraction) / self._now.count)

    def on_spent(self, epsilon: float) -> None:
        with self._lock:
            if self._now is not None:
                self._now.epsilon = epsilon
            self._told(f"epsilon {accountants.round_up(epsilon)}")

    def on_step(self, report: StepReport) -> None:
        with self._lock:
            if self._now is None:
                self.on_stage("train", report.planned_steps, report.step)
            elif self.epsilon is not None and self._now.stage.charged:
                self._now.epsilon = report.epsilon
            self._reach(f"step {report.step:,} of {report.planned_steps:,}", report.step, report.planned_steps)

    def watched(self, values: Iterable[Any], what: str) -> Iterator[Any]:
        """Yields the values, whose number is known, as a stage of their own."""
        values = list(values)
        self.on_stage(what, max(1, len(values)))
        for done, value in enumerate(values):
            yield value
            self._reach(f"{done + 1:,} of {len(values):,}", done + 1, len(values))

    def tick(self) -> None:
        """Shows what is due at this moment."""
        with self._lock:
            now = self._clock()
            if self._now is None or self._detail == "quiet" or now - self._start < FIRST_SECONDS:
                return
            if self._draws():
                self._flush_heading()
                self._draw()
            elif self._last_line is None or now - self._last_line >= LINE_SECONDS:
                self._flush_heading()
                line = self._line()
                # To the second, since `duration` would repeat itself.
                so_far = datetime.timedelta(seconds=int(now - self._start))
                self._write(line if line != self._last_text else f"{line}; {so_far} so far")
                self._last_text = line

    def seconds_left(self) -> float | None:
        """Seconds until the end of the last stage; None as long as they cannot be estimated."""
        with self._lock:
            present = next((place for place, part in enumerate(self._parts) if part is self._now), 0)
            left = [self._left(part) for part in self._parts[present:]]
            return None if None in left else float(sum(filter(None, left)))

    def _reach(self, what: str, whole: int, count: int) -> None:
        """Notes that so many whole parts of the present stage are done."""
        with self._lock:
            if self._now is not None:
                self._now.whole, self._now.count = whole, count
                self._far(what, whole / count, told=whole == count)

    def _far(self, what: str, done: float, told: bool = False) -> None:
        """Notes how much of the present stage is done; with `told`, reports it even right after another report."""
        part, now = self._now, self._clock()
        if part is None:
            return
        part.first, part.done, part.what = part.first or (done, now), min(done, 1.0), what
        part.heard = now
        if self._last_told is None or now - self._last_told >= 1.0 or told:
            self._last_told = now
            self._told(self._line())
        self.tick()

    def _draws(self) -> bool:
        """Whether there are bars rather than lines."""
        return self._detail == "normal" and self._stream.isatty()

    def _left(self, part: _Part) -> float | None:
        """Seconds that a stage will still take."""
        if part.since is None:
            return part.estimate
        now = self._clock()
        for done, since in filter(None, (part.first, part.begun if part.estimate is None else None)):
            least = 0.0 if part.estimate is None else _PACE
            if part.done > done + least and part.heard > since:
                left = (part.heard - since) / (part.done - done) * (1 - part.done)
                return max(left - (now - part.heard), 0.1 * left)
        elapsed = part.seconds + now - part.since
        return None if part.estimate is None else max(part.estimate - elapsed, 0.1 * elapsed)

    def _line(self) -> str:
        """The line that tells where the run is."""
        part = self._now
        if part is None:
            return ""
        place = f"[{self._parts.index(part) + 1}/{len(self._parts)}] " if len(self._parts) > 1 else ""
        texts = [f"{place}{part.stage.name}" + (f": {part.what}" if part.what else ""), *filter(None, [self._spent()])]
        left = self.seconds_left()
        if part.stage.name != "load":
            texts.append("time left not known yet" if left is None else f"about {duration(left)} left")
        return "; ".join(texts)

    def _spent(self) -> str | None:
        """The budget, as it stands in this stage."""
        spent = [part.epsilon for part in self._parts if part.epsilon is not None]
        if not spent or self._now is None:
            return None
        target = "" if self.epsilon is None else f" of {self.epsilon:g}"
        if self._now.epsilon is not None:
            return f"epsilon {accountants.round_up(max(spent))}{target}"
        return f"epsilon {accountants.round_up(max(spent))}{target} is paid, and this stage costs none"

    def _summary(self) -> str:
        """Seconds and epsilon by stage."""
        return ", ".join(f"{part.stage.name} {duration(part.seconds)}"
                         + ("" if part.epsilon is None else f" (epsilon {accountants.round_up(part.epsilon)} after it)")
                         for part in self._parts if part.seconds)

    def _leave(self) -> None:
        """Ends the present stage."""
        part = self._now
        if part is not None and part.since is not None:
            part.seconds += self._clock() - part.since
            part.since, part.estimate = None, 0.0
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        self._now = None

    def _told(self, line: str) -> None:
        """Writes a line about what happened, where every line is wanted."""
        if self._detail == "verbose":
            self._flush_heading()
            self._write(line)
        elif self._log is not None:
            self._write(line, shown=False)

    def _flush_heading(self) -> None:
        """Says once what was loaded, and what is ahead."""
        lines, self._heading = self._heading, []
        for line in lines:
            self._write(line)

    def _write(self, line: str, shown: bool = True) -> None:
        """Writes one plain line at once."""
        if self._log is not None:
            print(line, file=self._log, flush=True)
        if shown and self._detail != "quiet":
            self._last_line = self._clock()
            print(line, file=self._stream, flush=True)

    def _draw(self) -> None:
        """The bar of the present stage, made on first use."""
        part = self._now
        if part is None:
            return
        if self._bar is None:
            import tqdm

            self._bar = tqdm.tqdm(total=1.0, file=self._stream, bar_format="{desc} |{bar:20}| {postfix}")
        name, _, rest = self._line().partition("; ")
        self._bar.n = part.done
        self._bar.set_description_str(name, refresh=False)
        self._bar.set_postfix_str(rest, refresh=False)
        self._bar.refresh()

    def _watch(self) -> None:
        """Body of the thread: looks at the clock."""
        while not self._ended.wait(_TICK):
            self.tick()


def _announced(part: _Part) -> str:
    """A stage and its estimate."""
    return part.stage.name + ("" if not part.estimate or part.since is not None else
                              f" (about {duration(part.estimate)})")


def open_log(path: str | os.PathLike) -> TextIO:
    """Opens a log file at its end; only its owner may read it."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8")
