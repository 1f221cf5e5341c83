"""Other servers of the same weights, with the same two graphs or the official PyTorch code
(`official*`, `isat`).
"""
