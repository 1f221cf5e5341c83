"""CountTable of requests that several processes share."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.utils.edge.fakes import Clock
from utils.edge import counts, rate
from utils.edge.counts import BUCKET_BYTES, BUCKETS, CountTable
from utils.edge.rate import RateLimit, parse_rates
from utils.errors import TooManyRequests

ROOT = Path(__file__).parents[4]
WORKER = """
import asyncio, sys
from pathlib import Path
from utils.errors import TooManyRequests
from utils.edge import rate
from utils.edge.rate import RateLimit

rate.LOCK_TIMEOUT_S = 120  # a process that waits for a core is not one that keeps the lock

async def main(file, text, requests):
    limit, allowed = RateLimit(text, None, file=Path(file)), 0
    print("started", flush=True)
    sys.stdin.readline()
    for number in range(requests):
        try:
            await limit.check("", "a")
            print("allowed", flush=True)
        except TooManyRequests:
            pass

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""
HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(600)
"""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "rates"


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a process, and wait until it has printed its first line."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline()
    return process


def kill(process: subprocess.Popen[str]) -> str:
    """Kill a process, and return what it has printed that was not read yet."""
    assert process.stdout
    with process:
        process.kill()
        return process.stdout.read()


def run_together(processes: list[subprocess.Popen[str]]) -> int:
    """Let all processes begin at once, and return the number of requests that they were allowed."""
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    return sum(process.communicate()[0].count("allowed") for process in processes)


def parsed(text: str) -> rate.Rates:
    rates = parse_rates(text)
    assert rates
    return rates


def allowed(table: CountTable, text: str, requests: int, caller: str = "a") -> int:
    """Return how many of a number of requests a table allows."""
    return [table.add(caller, parsed(text), 1) for _ in range(requests)].count([])


async def refusal(limit: RateLimit) -> TooManyRequests | None:
    try:
        await limit.check("", "a")
    except TooManyRequests as error:
        return error
    return None


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_limit_holds_for_all_processes_together(file):
    workers = [start(WORKER, file, "100/day", 60) for _ in range(4)]
    assert run_together(workers) == 100


@pytest.mark.timeout(300)
def test_restarted_process_goes_on_with_the_counts(file):
    assert run_together([start(WORKER, file, "100/day", 60)]) == 60
    assert run_together([start(WORKER, file, "100/day", 60)]) == 40


@pytest.mark.timeout(300)
def test_killed_process_leaves_no_lock(file):
    table = CountTable(file)
    assert allowed(table, "3/day", 1) == 1
    holder = start(HOLDER, file)
    with pytest.raises(BlockingIOError):
        table.add("a", parsed("3/day"), 1)
    kill(holder)
    assert allowed(table, "3/day", 9) == 2


@pytest.mark.timeout(300)
def test_processes_killed_at_work_leave_exact_counts(file):
    workers = [start(WORKER, file, "2000/day", 100_000) for _ in range(3)]
    answers = 0
    for worker in workers:
        assert worker.stdin
        worker.stdin.write("\n")
        worker.stdin.flush()
    for worker in workers:
        assert worker.stdout
        # Fewer, and then the end, if the others have left it nothing.
        first = [worker.stdout.readline() for _ in range(20)]
        answers += "".join([*first, kill(worker)]).count("allowed")
    left = allowed(CountTable(file), "2000/day", 3000, "address:a")
    # A process may be killed after it has counted a request and before it has said so.
    assert 2000 - len(workers) <= answers + left <= 2000


@pytest.mark.timeout(300)
async def test_worker_counts_alone_while_another_one_keeps_the_lock(file, log, monkeypatch):
    monkeypatch.setattr(rate, "LOCK_TIMEOUT_S", 0.05)
    monkeypatch.setattr(rate, "RETRY_INTERVAL_S", 0)
    monkeypatch.setattr(rate, "REFUSED_S", 0)
    limit = RateLimit("3/day", None, file=file)
    assert await refusal(limit) is None
    holder = start(HOLDER, file)
    holder.send_signal(signal.SIGSTOP)
    assert [await refusal(limit) is None for _ in range(4)] == [True, True, True, False]
    kill(holder)
    assert [await refusal(limit) is None for _ in range(3)] == [True, True, False]
    expected = (
        "the counts of all workers are unavailable, each worker counts requests on its own: another"
        " worker keeps"
    )
    assert [level for level, _ in log()] == ["WARNING", "INFO"]
    assert log()[0][1].startswith(expected)
    assert (
        log()[1][1] == "the counts of all workers are available again, requests are counted there"
    )


async def test_removed_file_is_replaced_by_one_that_others_share(file, monkeypatch):
    monkeypatch.setattr(counts, "CHECK_INTERVAL_S", 0)
    one, other = CountTable(file), CountTable(file)
    assert (allowed(one, "3/day", 1), allowed(other, "3/day", 1)) == (1, 1)
    file.unlink()
    assert (allowed(one, "3/day", 1), allowed(other, "3/day", 9)) == (1, 2)


async def test_worker_without_a_folder_counts_alone(tmp_path, log):
    limit = RateLimit("2/day", None, file=tmp_path / "missing" / "rates")
    assert [await refusal(limit) is None for _ in range(3)] == [True, True, False]
    ((level, text),) = log()
    assert (level, "No such file or directory" in text) == ("WARNING", True)


def test_clock_that_was_set_back_keeps_nobody_out(file):
    clock = Clock(1_000_000.0)
    table = CountTable(file, clock)
    assert allowed(table, "3/minute", 9) == 3
    clock.now -= 100_000
    assert allowed(table, "3/minute", 9) == 3


def test_time_of_day_does_not_matter(file, monkeypatch):
    table = CountTable(file)
    assert allowed(table, "3/day", 9) == 3
    monkeypatch.setattr(time, "time", Clock(4_000_000_000))
    assert allowed(table, "3/day", 9) == 0


def test_previous_window_counts_in_proportion_to_its_overlap(file):
    clock = Clock(600.0)
    table = CountTable(file, clock)
    assert allowed(table, "10/minute", 99) == 10
    clock.now = 675.0  # three quarters of the last minute were in the previous window
    assert allowed(table, "10/minute", 99) == 3
    clock.now = 780.0
    assert allowed(table, "10/minute", 99) == 10


def test_change_of_an_amount_keeps_the_counts(file):
    table = CountTable(file)
    assert allowed(table, "3/day", 9) == 3
    assert allowed(table, "5/day", 9) == 2


def test_requests_above_every_limit_are_refused(file):
    ((seconds, limit),) = CountTable(file).add("a", parsed("3/minute"), 4)
    assert (seconds, limit.amount) == (60, 3)


def test_oldest_count_of_a_full_bucket_goes_and_the_file_does_not_grow(file, monkeypatch):
    monkeypatch.setattr(counts, "BUCKETS", 1)
    clock = Clock(1_000.0)
    table = CountTable(file, clock)
    assert allowed(table, "1/day", 1, "first") == 1
    clock.now += 60
    for number in range(counts.SLOTS_PER_BUCKET - 1):
        assert allowed(table, "1/day", 2, f"caller {number}") == 1
    assert allowed(table, "1/day", 1, "first") == 0
    assert allowed(table, "1/day", 2, "another") == 1
    assert allowed(table, "1/day", 1, "first") == 1
    assert file.stat().st_size == BUCKET_BYTES


def test_file_takes_bounded_memory_for_any_number_of_callers(file):
    table = CountTable(file)
    for number in range(2000):
        table.add(f"address:{number}", parsed("1/minute"), 1)
    assert file.stat().st_size == BUCKETS * BUCKET_BYTES == 8 * 2**20
    assert [
        table.add(f"address:{number}", parsed("1/minute"), 1) == [] for number in range(2000)
    ].count(True) == 0


def test_file_is_private_and_its_lock_is_free_between_requests(file):
    allowed(CountTable(file), "3/day", 1)
    assert file.stat().st_mode & 0o777 == 0o600
    code = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    subprocess.run([sys.executable, "-c", code, str(file)], check=True)
