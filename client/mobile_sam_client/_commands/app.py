"""The command group, with error handling and exit statuses."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from mobile_sam_client import MobileSamError
from mobile_sam_client._commands import batch, embed, everything, info, segment
from mobile_sam_client._commands.failures import EXIT_INTERRUPTED, CommandError, describe_with_file
from mobile_sam_client._commands.output import escape_unencodable_output, print_error

EPILOG = """[bold]Examples[/]

mobile-sam segment photo.jpg --point 320,240 --picture found.png

mobile-sam batch photos --out found

mobile-sam info

[bold]--url[/] (or MOBILE_SAM_URL) is the address of the service; [bold]--local[/] starts a service for this run only.
The API key is read from the environment variable MOBILE_SAM_API_KEY: command lines are visible to all users.

Exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""


class Commands(TyperGroup):
    """Command group that prints known errors in one line."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override] # typer passes its own Context
        """Run a command.

        Raises:
            typer.Exit: after an error was printed.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print_error("interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except (MobileSamError, CommandError, OSError) as error:
            if isinstance(error, BrokenPipeError):  # such as `mobile-sam ... | head`
                raise
            print_error(describe_with_file(error))
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=Commands,
    name="mobile-sam",
    help="Segment images with a MobileSAM service.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command(epilog=segment.EXAMPLES)(segment.segment)
app.command(epilog=everything.EXAMPLES)(everything.everything)
app.command(epilog=batch.EXAMPLES)(batch.batch)
app.command(epilog=embed.EXAMPLES)(embed.embed)
app.command(epilog=info.EXAMPLES)(info.info)


def main() -> None:
    """Run the command line and exit."""
    escape_unencodable_output()
    app(prog_name="mobile-sam")
