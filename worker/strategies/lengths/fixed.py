"""As many drafts of a row are verified as there are."""


class Fixed:
    """The same for every row."""

    def most(self, request: str, drafts: int, price: float) -> int:
        """All of them."""
        return drafts

    def verified(self, request: str, drafts: int, accepted: int) -> None:
        """Nothing is learnt."""

    def ended(self, request: str) -> None:
        """Nothing is kept."""
