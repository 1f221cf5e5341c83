"""Images that are encoded in the background: their queue, and the encoder that works while no
caller waits.
"""
