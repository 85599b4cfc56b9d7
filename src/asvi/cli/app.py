"""Takes a command line; gives tables of tasks and benchmarks: ``asvi tasks``, ``asvi bench``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from asvi import tasks
from asvi.errors import AsviError
from asvi.fitting.training.asked import Training
from asvi.program.compiling import keep_programs

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Structured variational inference."
)
bench = typer.Typer(no_args_is_help=True, help="The paper's tables, run again.")
app.add_typer(bench, name="bench")


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


@app.command("fit")
def fit_command(
    model: Annotated[str, typer.Argument(help="A task's name, or my_model.py:model.")],
    data: Annotated[Path | None, typer.Option(help=".npz with the model's arguments.")] = None,
    out: Annotated[Path | None, typer.Option(help="Save the fit here (fit.asvi).")] = None,
    seed: Annotated[int, typer.Option(help="Of the random key.")] = 0,
    steps: Annotated[int | None, typer.Option(min=1, help="The most steps to take.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Save the marginals here (.png).")] = None,
) -> None:
    """Fit a model: table, verdict and picture."""
    import jax

    from asvi.cli.find_model import find_model, read_data
    from asvi.fitting.archive import check_writable
    from asvi.results import plot
    from asvi.results.fit import fit

    function, args, where = find_model(model)
    arrays: Any = read_data(data)
    target = picture or (Path("out") / f"{where.rpartition(':')[2]}.png")
    if picture is None:
        target.parent.mkdir(exist_ok=True)
    for path in (out, target):  # before any work is done
        if path is not None:
            check_writable(path)
    result = fit(
        function,
        *args,
        rng_key=jax.random.key(seed),
        training=Training(num_steps=steps),
        **arrays,
    )
    console = Console()
    if out is not None:
        result.save(out, model_path=where)
        console.print(f"wrote {out}")
    console.print(result)
    plot.prior_posterior(result).ravel()[0].figure.savefig(target, dpi=120)
    console.print(f"wrote {target}")


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
