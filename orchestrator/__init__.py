"""Work of Triton's Python models: images, embeddings, prompts, masks and answers.

Only `triton_io` needs Triton.
"""
