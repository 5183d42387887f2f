"""What goes wrong with the embedded server, for its user."""


class ServerError(Exception):
    """The embedded Redis server cannot be started, stopped or asked; the message is one line for the user."""
