"""Description of the machine."""

import os

import numpy as np

from benchmarks.machine import describe_machine


def test_versions_of_python_and_packages_are_left_out_on_demand():
    hardware, full = describe_machine(versions=False), describe_machine()
    assert f" on {os.cpu_count()} cores of " in hardware
    assert full.startswith(hardware)
    assert f"numpy {np.__version__}" in full.removeprefix(hardware)
