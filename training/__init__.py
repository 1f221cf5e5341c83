"""Training of the built-in weights from generated scenes. Needs PyTorch; nothing that serves or tests does."""
