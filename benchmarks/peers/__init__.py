"""Other ways to serve the same weights: the same two graphs, or the official PyTorch code (`official*` and `isat`)."""
