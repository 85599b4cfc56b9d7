"""Takes a command line; gives fits, checks, reports and tables: ``asvi fit``, ``asvi tasks``."""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from asvi import __version__, tasks
from asvi.errors import AsviError
from asvi.fitting.training.asked import Training
from asvi.program.compiling import keep_programs

NOT_TRUSTWORTHY = 3  #: format: the exit code that scripts wait for

app = typer.Typer(no_args_is_help=True, help="The posterior of a NumPyro model, and its verdict.")
bench = typer.Typer(no_args_is_help=True, help="The paper's tables, run again.")
app.add_typer(bench, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"asvi {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """The posterior of a NumPyro model, and its verdict."""


@app.command("tasks")
def list_tasks() -> None:
    """The embedded tasks and their exact log evidence."""
    table = Table("task", "log evidence", "error", "method", "what")
    for name in tasks.names():
        task = tasks.get(name)
        table.add_row(
            name,
            f"{task.log_evidence:.4f}",
            f"{task.log_evidence_error:.0e}",
            task.log_evidence_method,
            task.description,
        )
    Console().print(table)


Model = Annotated[str, typer.Argument(help="A task's name, or my_model.py:model.")]
Words = Annotated[
    list[str] | None, typer.Argument(help="Further arguments of the model: n=3 y=[1,2].")
]
Data = Annotated[
    Path | None, typer.Option(help="The model's arguments: .npz, .npy, .csv, .parquet or .json.")
]


@app.command("fit")
def fit_command(
    model: Model,
    words: Words = None,
    data: Data = None,
    out: Annotated[Path | None, typer.Option(help="Save the fit here (fit.asvi).")] = None,
    netcdf: Annotated[Path | None, typer.Option(help="Save ArviZ data here (fit.nc).")] = None,
    picture: Annotated[Path | None, typer.Option(help="Save a picture here (.png).")] = None,
    family: Annotated[
        str | None, typer.Option(help="Train this family, as Coupled or MeanField.")
    ] = None,
    effort: Annotated[str, typer.Option(help="quick, auto or thorough.")] = "auto",
    max_error: Annotated[
        float, typer.Option(help="Error of means, in sds, and of sds, relative.")
    ] = 0.05,
    num_steps: Annotated[
        int | None, typer.Option(min=1, help="The most gradient steps of a training.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, hidden=True)] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save the training here as it goes, and go on from it.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random key.")] = 0,
    progress: Annotated[bool, typer.Option(help="Show a line of progress.")] = True,
    check: Annotated[
        bool, typer.Option(help="End with code 3 where the posterior is not trustworthy.")
    ] = True,
) -> None:
    """Fit a model: verdict and table; files only where they are named."""
    from asvi.cli.find_model import find_model
    from asvi.cli.read_data import bind_arguments, read_data, read_words
    from asvi.errors import VerdictWarning
    from asvi.fitting.archive import check_writable
    from asvi.results.fit import fit

    function, args, where = find_model(model)
    arguments = {**read_data(data, function), **read_words(words or [])}
    bound, more, named = bind_arguments(function, arguments)
    for path in (out, netcdf, picture):  # before any work is done
        if path is not None:
            check_writable(path)
    if steps is not None:
        typer.echo("`--steps` is now `--num-steps`; `--steps` goes in 0.3.", err=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VerdictWarning)  # the verdict is printed, first of all
        result = fit(
            bound,
            *(more or args),
            rng_key=seed,
            family=family,
            effort=effort,
            max_error=max_error,
            training=_training(num_steps or steps),
            checkpoint=checkpoint,
            progress_bar=None if progress else False,
            **named,
        )
    typer.echo(str(result))
    _write_files(result, out, netcdf, picture, where)
    if check and not result.diagnose().ok:
        raise typer.Exit(NOT_TRUSTWORTHY)


def _training(num_steps: int | None) -> Training | None:
    return None if num_steps is None else Training(num_steps=num_steps)


def _write_files(
    result: Any, out: Path | None, netcdf: Path | None, picture: Path | None, where: str
) -> None:
    """Those files that were named."""
    if out is not None:
        result.save(out, model_path=where)
    if netcdf is not None:
        result.to_arviz().to_netcdf(str(netcdf))
    if picture is not None:
        from asvi.results import plot

        axes = plot.prior_posterior(result)
        axes.ravel()[0].figure.savefig(picture, dpi=120)
    for path in (out, netcdf, picture):
        if path is not None:
            typer.echo(f"wrote {path}")


@app.command("check")
def check_command(model: Model, words: Words = None, data: Data = None) -> None:
    """Look for errors in a model and its data, without a fit; show the model's structure."""
    from asvi.cli.find_model import find_model
    from asvi.cli.read_data import bind_arguments, read_data, read_words
    from asvi.results.fit import check

    function, args, _ = find_model(model)
    arguments = {**read_data(data, function), **read_words(words or [])}
    bound, more, named = bind_arguments(function, arguments)
    typer.echo(str(check(bound, *(more or args), **named)))
    typer.echo("no errors found")


@app.command("report")
def report_command(
    file: Annotated[Path, typer.Argument(help="A saved fit (fit.asvi).")],
    model: Annotated[str | None, typer.Option(help="my_model.py:model, if it has moved.")] = None,
    out: Annotated[Path | None, typer.Option(help="The page (fit.html).")] = None,
) -> None:
    """One HTML page from a saved fit: table, verdict and pictures."""
    from asvi.cli.find_model import find_model
    from asvi.fitting.archive import check_writable
    from asvi.results.fit import load
    from asvi.results.html import write_html
    from asvi.results.storage.file import model_path_of

    target = out or file.with_suffix(".html")
    check_writable(target)
    where = model or model_path_of(file)
    if where is None:
        raise AsviError(
            f"{file} does not say where its model is.\n"
            f"Write instead:\n    asvi report {file} --model my_model.py:model"
        )
    function, _, _ = find_model(where)
    write_html(load(file, function), target, title=f"asvi: {where.rpartition('/')[2]}")
    Console().print(f"wrote {target}")


Protocols = Annotated[str, typer.Option("--protocol", help="paper: as published; best: asvi.fit.")]
Names = Annotated[str, typer.Option(help="Comma-separated names; all by default.")]
Count = Annotated[int | None, typer.Option(min=1, help="Overrides the protocol.")]
Out = Annotated[Path, typer.Option(help="Results folder; a run goes on from what it holds.")]


def _table_command(kind: str, help_text: str) -> None:
    """Add ``asvi bench {kind}``; both tables read the same cells."""

    def command(
        protocol: Protocols = "paper",
        task_names: Annotated[
            str, typer.Option("--tasks", help="Comma-separated; all if empty.")
        ] = "",
        families: Names = "",
        seeds: Count = None,
        steps: Count = None,
        out: Out = Path("out/bench"),
    ) -> None:
        _bench(kind, protocol, task_names, families, seeds, steps, out)

    bench.command(kind, help=help_text)(command)


_table_command(
    "table1", "Negative ELBO of every family on every task, and its gap to the evidence."
)
_table_command("table2", "Errors of posterior means and standard deviations, from table1's cells.")


def _bench(kind, protocol, task_names, families, seeds, steps, out) -> None:
    from asvi.cli.bench.protocol import Protocol
    from asvi.cli.bench.run_cells import run_cells
    from asvi.cli.bench.write_report import write_report

    chosen = {k: v for k, v in {"seeds": seeds, "steps": steps}.items() if v is not None}
    settings = Protocol.named(protocol, **chosen)
    cells = run_cells(out, settings, _split(task_names), _split(families))
    text = write_report(kind, cells, out)
    Console().print(Markdown(text.replace("<br>", "; ")))
    Console().print(f"wrote {out}/{kind}.json, {out}/{kind}.md")


def _split(names: str) -> list[str] | None:
    return [name.strip() for name in names.split(",") if name.strip()] or None


def main() -> None:
    """The console script: our errors are shown, not traced; what is compiled is kept."""
    with suppress(OSError):  # no place to keep it is no reason to stop
        keep_programs()
    try:
        app(standalone_mode=True)
    except AsviError as error:
        Console(stderr=True).print(f"[red]{type(error).__name__}[/red]: {error}", highlight=False)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
