"""The delaying proxy of the measurement of the page."""

import random
import socket
import threading
import time

from benchmarks.page_load import delayed


def echo_all(listener: socket.socket) -> None:
    """Answer what a connection sends, once it has sent everything."""
    connection, _ = listener.accept()
    with connection:
        received = b"".join(iter(lambda: connection.recv(2**16), b""))
        connection.sendall(received)


def answer_late(listener: socket.socket) -> None:
    """Answer a connection in two steps, once it has sent everything."""
    connection, _ = listener.accept()
    with connection:
        while connection.recv(2**16):
            pass
        connection.sendall(b"answer")
        time.sleep(0.1)


def test_proxy_passes_on_everything_in_order_and_the_ends_of_connections():
    sent = random.Random(0).randbytes(2**20)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=echo_all, args=[listener])
        thread.start()
        with delayed(listener.getsockname()[1], delay_s=0.01) as url:
            port = int(url.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                received = b"".join(iter(lambda: connection.recv(2**16), b""))
        thread.join()
    assert received == sent


def test_connections_end_whose_caller_left_before_the_answer(caplog):
    """The end of the answer then meets a reset connection. asyncio logs it if a connection is left
    open for this reason.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_late, args=[listener])
        thread.start()
        with delayed(listener.getsockname()[1], delay_s=0.01) as url:
            port = int(url.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall(b"x")
            thread.join()
            time.sleep(0.2)  # the answer is on its way
    assert caplog.messages == []
