"""Modules of the service, one idea each."""
