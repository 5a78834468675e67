"""Entry point of the `penstock` process: run a command and report a failure in one line.

Large modules are not imported here, and typer is not imported for `broker` and `gateway`, so that these start fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main() -> None:
    # kio imports hypothesis if it is installed. It is not needed here and would delay the start by 0.2 s.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return the exit code."""
    from penstock.cli.failures import ExitCode, Failure
    from penstock.errors import ConfigError

    try:
        _carry_out(list(arguments))
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else ExitCode.FAILED
    except Failure as failure:
        _complain(str(failure), failure.hint)
        return failure.code
    except ConfigError as error:
        _complain(str(error), "Correct the setting and run the command again.")
        return ExitCode.USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The process that reads standard output has closed it (`| head`); the flush at exit must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    return 0


def _carry_out(arguments: list[str]) -> None:
    if arguments[:1] == ["broker"]:
        from penstock.cli.broker import broker

        broker(arguments[1:])
    elif arguments[:1] == ["gateway"]:
        from penstock.cli.gateway import gateway

        gateway(arguments[1:])
    else:
        from penstock.cli.commands import make_app
        from penstock.cli.contexts import enter_context

        arguments = enter_context(arguments)
        make_app(arguments)(arguments, prog_name="penstock", standalone_mode=True)


def _complain(message: str, hint: str) -> None:
    sys.stdout.flush()
    line = f"error: {message}"
    is_coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    print(f"\x1b[31m{line}\x1b[0m" if is_coloured else line, file=sys.stderr)
    if hint:
        print(hint, file=sys.stderr)


if __name__ == "__main__":
    main()
