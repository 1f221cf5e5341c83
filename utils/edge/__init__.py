"""The edge: what every request passes before BentoML sees it, and how an API worker begins and ends."""
