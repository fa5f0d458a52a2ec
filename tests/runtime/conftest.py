"""What tests of the runtime may ask for: the servers that others wrote."""

from tests.servers import aimock, aimock_server

__all__ = ["aimock", "aimock_server"]
