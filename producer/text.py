"""Text that users made, on its way to people."""


def printable(text: str) -> str:
    """Text of a user's making (a file's name, say) that does no harm to a terminal, nor to Redis."""
    return "".join(char if char.isprintable() else "?" for char in text.encode(errors="replace").decode())
