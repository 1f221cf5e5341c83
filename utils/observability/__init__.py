"""Logs, metrics, traces and the request context."""
