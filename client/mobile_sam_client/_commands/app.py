"""The commands together, and what becomes of a known error: one line and exit status 1."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from mobile_sam_client import MobileSamError
from mobile_sam_client._commands import batch, embed, everything, info, segment
from mobile_sam_client._commands.failures import INTERRUPTED, CommandError, reason
from mobile_sam_client._commands.output import make_streams_lenient, tell_error

EPILOG = """[bold]Examples[/]

mobile-sam segment photo.jpg --point 320,240 --picture found.png

mobile-sam batch photos --out found

mobile-sam info

The service is looked for at [bold]--url[/] (or MOBILE_SAM_URL); [bold]--local[/] starts one for this run alone.
The API key is taken from the environment, MOBILE_SAM_API_KEY, as every user of the machine can read a command line.

Exit status: 0 all well, 1 something failed, 2 wrong usage, 130 interrupted."""


class Commands(TyperGroup):
    """The group of all commands. What is known to go wrong is told here, for all of them."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override] # typer.Context is what comes
        """Run the command of the context.

        Raises:
            typer.Exit: after an error was told.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            tell_error("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except (MobileSamError, CommandError, OSError) as error:
            if isinstance(error, BrokenPipeError):  # the reader has seen enough
                raise
            tell_error(reason(error))
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=Commands,
    name="mobile-sam",
    help="Find objects on images with a MobileSAM service.",
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
    make_streams_lenient()
    app(prog_name="mobile-sam")
