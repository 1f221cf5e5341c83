"""Training of the built-in weights from generated scenes. Only this package needs PyTorch."""
