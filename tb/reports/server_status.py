"""State of a server: `python -m signalbox.tb.reports.server_status [--socket PATH]`."""

import argparse
import sys
from collections.abc import Sequence

from signalbox.driver.client.socket_link import ask_status
from signalbox.driver.protocol.errors import ServerError
from signalbox.hw import options
from signalbox.tb.reports.serve import add_socket

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=options.program("signalbox.tb.reports.server_status"),
        description="Show the applications of a server.",
    )
    add_socket(parser)
    args = parser.parse_args(arguments)
    try:
        print(ask_status(args.socket))
    except ServerError as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
