"""Progress bar on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich import progress as bars
from rich.console import Console


class _RateColumn(bars.ProgressColumn):
    def render(self, task: bars.Task) -> str:
        return f"{task.speed:.2f}/s" if task.speed else ""


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[..., None]]:
    """Show a progress bar, if standard error is a terminal, and yield Rich's `update`."""
    console = Console(stderr=True)
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        _RateColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
    )
    is_hidden = not console.is_interactive
    with bars.Progress(*columns, console=console, disable=is_hidden, transient=True) as bar:
        yield partial(bar.update, bar.add_task(description, total=total))
