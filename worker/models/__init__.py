"""Models that a machine without a model hub can have: the embedded default, made from a wheel."""
