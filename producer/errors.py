"""What a user of the producer has to deal with: a small tree, so that one `except` can catch it all.

Every message is one line that names what is wrong and, where there is one, the fix.
"""


class ProducerError(Exception):
    """The base of everything that the producer raises on purpose."""


class RedisUnavailable(ProducerError):  # noqa: N818 - a state of the world, not a fault of the call
    """Redis cannot be reached or refuses to serve."""


class NoRedisUrl(RedisUnavailable):
    """What was given as its URL is none."""


class Refused(ProducerError):  # noqa: N818 - what the user asked for is refused
    """What was asked cannot be done; nothing was changed."""


class NoSuchJob(Refused):
    """No job has this id or name; it may have been purged."""


class JobPaused(ProducerError):  # noqa: N818 - a state of the world, not a fault of the call
    """The job that is waited for has paused itself, because too many of its rows failed; nothing of it is lost."""
