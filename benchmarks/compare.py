"""Comparison of this checkout's service with the one of another revision.

    python -m benchmarks.compare main    this checkout, as it is, with a branch, a tag or a commit
    make bench-compare BASELINE=main     the same

Both services run at once and take turns, so that other load on the machine affects them alike:
clicks on a known image, of one caller and of 8, and on new ones as JSON, as a form and as a large
file in JSON. A ratio is the median of the rounds' ratios, each of two medians. The other revision
runs in this environment, with its own packages' code and model repository.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.closed_loop import Cell, Cells, closed_loop
from benchmarks.servers import CACHED, COLD, FORM, LARGE, ServerArm, compare_masks
from benchmarks.service import BUILTIN, CACHE, OFFICIAL, running_checkout
from benchmarks.stats import percentile, ratios, table
from harness import ROOT
from harness.load import client_process
from harness.repository import prepare

ROUNDS = 15
REQUESTS = {(CACHED, 1): 10, (CACHED, 8): 40, (COLD, 1): 2, (FORM, 1): 2, (LARGE, 1): 2}
"""Requests of a round, by workload and number of callers at once."""
OURS, BASELINE = "this checkout", "baseline"
HEADER = (
    "clicks",
    "callers",
    f"{BASELINE}, p50 ms",
    "p95",
    f"{OURS}, p50 ms",
    "p95",
    "ratio of medians (quartiles)",
)
PREPARE = "import sys; from harness.repository import prepare; print(prepare(sys.argv[1]))"


@contextmanager
def checked_out(revision: str, repository: Path = ROOT) -> Iterator[Path]:
    """Yield a folder with the files of a revision until the block ends.

    Raises:
        SystemExit: a one-line error; Git does not know the revision.
    """
    CACHE.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=CACHE, prefix="baseline-") as folder:
        archive = Path(folder) / "files.tar"
        command = [
            "git",
            "-C",
            str(repository),
            "archive",
            f"--output={archive}",
            "--end-of-options",
            revision,
        ]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise SystemExit(f"error: {ended.stderr.strip()}")
        root = Path(folder) / "files"
        root.mkdir()
        subprocess.run(["tar", "-xf", str(archive), "-C", str(root)], check=True)
        yield root


def repository_of(root: Path, weights: str) -> Path:
    """Return the model repository of a checkout with these weights, as its own code makes it."""
    if root == ROOT:
        return prepare(weights)
    command = [sys.executable, "-c", PREPARE, weights]
    printed = subprocess.run(
        command, cwd=root, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return Path(printed.splitlines()[-1])


def measure(baseline: Path, weights: str, client: Executor, rounds: int) -> str:
    """Return the table for the baseline, a checkout, with a set of weights."""
    with ExitStack() as stack:
        arms = {}
        for name, root in {BASELINE: baseline, OURS: ROOT}.items():
            folder = Path(stack.enter_context(TemporaryDirectory(dir=CACHE)))
            service = running_checkout(root, repository_of(root, weights), folder)
            arms[name] = ServerArm(stack.enter_context(service))
        print(compare_masks(arms))
        planned = {Cell(arm, *clicks): count for clicks, count in REQUESTS.items() for arm in arms}
        return as_table(closed_loop(arms, planned, client, rounds))


def as_table(cells: Cells) -> str:
    """Return a table with a row for each workload."""
    rows: list[Sequence[object]] = []
    for workload, callers in REQUESTS:
        pair = [Cell(name, workload, callers) for name in (BASELINE, OURS)]
        times = [
            1e3 * percentile(cells.latencies(cell), percent)
            for cell in pair
            for percent in (50, 95)
        ]
        theirs, ours = map(cells.medians, pair)
        rows.append((workload, callers, *times, ratios(ours, theirs)))
    return table(HEADER, rows)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", help="branch, tag or commit to compare with")
    arguments = parser.parse_args()
    with checked_out(arguments.revision) as baseline, client_process() as client:
        for weights in (OFFICIAL, BUILTIN):
            print(
                f"== {weights} weights, {ROUNDS} rounds"
                f" ==\n{measure(baseline, weights, client, ROUNDS)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
