"""Redis' errors, sorted."""

import pytest
from redis import exceptions

from producer.record.trouble import Trouble, trouble


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.ConnectionError("x"), Trouble.UNREACHABLE),
        (exceptions.BusyLoadingError("x"), Trouble.UNREACHABLE),
        (exceptions.NoScriptError("x"), Trouble.UNREACHABLE),
        (ConnectionResetError(), Trouble.UNREACHABLE),
        (exceptions.TimeoutError("x"), Trouble.TIMEOUT),
        (TimeoutError(), Trouble.TIMEOUT),
        (exceptions.ResponseError("BUSY Redis is busy running a script"), Trouble.TIMEOUT),
        (exceptions.OutOfMemoryError("x"), Trouble.FULL),
        (exceptions.ResponseError("ERR Error running script: -OOM command not allowed when used"), Trouble.FULL),
        (exceptions.ReadOnlyError("x"), Trouble.READ_ONLY),
        (exceptions.ResponseError("ERR @user_script: -READONLY You can't write"), Trouble.READ_ONLY),
        (exceptions.ResponseError("NOREPLICAS Not enough good replicas to write"), Trouble.READ_ONLY),
        (exceptions.ResponseError("MISCONF Errors writing to the AOF file"), Trouble.DISK),
        (exceptions.AuthenticationError("x"), Trouble.REFUSED),
        (exceptions.NoPermissionError("x"), Trouble.REFUSED),
        (exceptions.ResponseError("ERR ACL failure in script: no permissions"), Trouble.REFUSED),
        (exceptions.ResponseError("WRONGTYPE Operation against a key"), Trouble.OTHER),
        (exceptions.WatchError("x"), Trouble.OTHER),
    ],
)
def test_kinds(error: Exception, kind: Trouble) -> None:
    assert trouble(error) is kind
