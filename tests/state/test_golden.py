"""Tokens of the first release. They keep opening: a flow must survive an update of the server.

Whoever changes the payload or the token format raises the format number and these tests stay,
turned into refusals, beside new ones.
"""

from fastapi_mcp_mrtr.state.cursor import open_cursor, seal_cursor

from .samples import BINDING, FIXED_CODEC, FLOW, NOW, seal, security

STATE = (
    "AQcyMDI2LTA3dHdlbHZlIGJ5dGVzzCIl61zr2k4BGU9OP1PSEPyJMyIcG9stJ1LVQsUBd-RUfIdHL9b0_DJUoRDz"
    "QiLwbagJDy7R9hiq4Ac9uUUxeivvT1NhNiVTyhvsWJgCAe6ss4W14UuXH_o2eAFRMNQMb5LjI-IK2q3jznuDx_oD"
    "DHj84rM3YswbROG2Q-mOTECegJ78kzlusu-A6LyXRN9yAyE0qDx-_V3QPjHs-DFp8_6VSLr_EJNc-ic_RC1GGvst"
    "oQRXWQzIToBJUpuT0EGfrHJnkD3GvguUb5fAUrkZg_WisU8PmXPSgdWEYbV3Gf1d6Uid_ApN2F7pTN9yLGvoTb9A"
    "uMi7Ad182S75HxqIOduYGY1s0GazfkA_esclzdPpoOYKLXt8pfohmqOdk-KGXhk6PZNiAcQKBGKpfOkQkX8Niodb"
    "5gGCBqx-v8Y4p3odd8rDWjSwafH-5eWrwYUzRDWlASo1pZI14CwEUNeLvlG7niqIv4EOsm6ExV9vse2JnX4dcvc"
)
CURSOR = "AQcyMDI2LTA3dHdlbHZlIGJ5dGVzzDF9pkf1yBcIHBFeeAybUL_Xb0VaToppNT-8PmyNsbkCUyJYO2GIiJXR"


def test_state_opens() -> None:
    """decision: what an earlier version sealed opens, entry by entry."""
    assert security().unseal(STATE, BINDING, now=NOW) == FLOW


def test_state_is_sealed_the_same() -> None:
    """decision: during an update, workers of the earlier version open what this one seals."""
    assert seal(security(FIXED_CODEC)) == STATE


def test_cursor_opens() -> None:
    """decision: a client may page on through an update."""
    assert open_cursor(FIXED_CODEC, "tools/list", CURSOR) == "book_seat"


def test_cursor_is_sealed_the_same() -> None:
    """decision: and the other way round."""
    assert seal_cursor(FIXED_CODEC, "tools/list", "book_seat") == CURSOR
