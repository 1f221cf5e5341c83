"""What `service.py` needs, a module per idea."""
