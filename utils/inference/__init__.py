"""One call of the model: its request, its answer, fairness between callers, and the loop of
automatic masks.
"""
