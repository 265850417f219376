"""`onegate metrics`: figures for a monitoring system."""

from onegate.cli.options import Socket
from onegate.cli.terminal import say
from onegate.client.sync import Client


def metrics(*, socket: Socket = None) -> None:
    """Print the daemon's metrics in Prometheus text format.

    **Examples**

    ```
    onegate metrics
    onegate metrics | grep '^onegate_'
    ```
    """
    with Client(socket, app="onegate metrics") as gate:
        text = gate.metrics()
    say(text, end="" if text.endswith("\n") else "\n")
