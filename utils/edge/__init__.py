"""The edge: checks of requests before BentoML sees them, and start-up and shutdown of API
workers.
"""
