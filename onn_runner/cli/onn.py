"""`onn`: everything around runs, one verb per file. Nothing here imports torch before a verb needs it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from onn_runner import __version__
from onn_runner.cli import convert, explain, importance, join, profile, report, status
from onn_runner.errors import OnnRunnerError
from onn_runner.plain import printable

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Around the runs of onn-run: what can be chosen, and what came of it. Train with onn-run.",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"onn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="The version.")] = False,
) -> None:
    pass


def _kinds() -> list[str]:
    from onn_runner.cli.listing import KINDS

    return list(KINDS)


@app.command("list")
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(help="operators, models, networks, data, ...; all when left out", autocompletion=_kinds),
    ] = None,
    option: Annotated[
        str | None, typer.Argument(help="One of them, such as data denoise: its keys with what they mean.")
    ] = None,
    config_dir: Annotated[
        str | None, typer.Option("--config-dir", "-cd", help="A folder with more options, as for onn-run.")
    ] = None,
) -> None:
    """What can be chosen: operators, models, networks, data, partitions, ..., with one line each."""
    from onn_runner.cli import listing

    if kind is not None and option is not None:
        print(listing.keys(kind, option, config_dir))
    else:
        print("\n".join(listing.lines(kind, config_dir)))


for verb in (
    profile.profile,
    explain.explain,
    importance.reduce,
    convert.convert,
    status.status,
    join.join,
    report.report,
):
    app.command()(verb)


def main() -> None:
    """Run `onn`; errors of this package are one sentence."""
    try:
        app()
    except OnnRunnerError as error:
        print(f"onn: {printable(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
