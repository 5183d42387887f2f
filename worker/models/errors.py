"""What goes wrong when a model is to be had."""


class ModelError(Exception):
    """No model can be had; the message is one line for the user."""
