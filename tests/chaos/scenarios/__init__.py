"""Faults and attacks on a running service, with figures of its recovery."""
