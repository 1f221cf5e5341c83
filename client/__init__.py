"""Clients of the service; they share no code with the server."""
