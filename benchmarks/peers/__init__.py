"""Other ways to serve the same two graphs, each as its framework's documentation would have it written."""
