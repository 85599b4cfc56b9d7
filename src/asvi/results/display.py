"""Takes a Fit; gives what is seen of it: text, text in colour, HTML, one line."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from asvi.program import markup
from asvi.results.inference_data import minibatched
from asvi.results.settings import DisplaySettings
from asvi.results.summary import chains_of, errors_of

__all__ = ["OnConsole", "in_a_line", "in_html", "in_text"]

HEAD = ("", "mean", "sd", "5%", "95%", "ess")
COLOURS = {"good": "bold green", "usable": "bold yellow", "not trustworthy": "bold red"}


class Row(NamedTuple):
    """A number of the posterior, in words and figures; or words alone."""

    label: str
    figures: tuple[str, ...] = ()


class Block(NamedTuple):
    """The rows of a site that are shown, and those that are folded."""

    shown: list[Row]
    folded: list[Row]
    words: str = ""
    """How many more there are."""


# --------------------------------------------------------------------------------------- forms


def in_a_line(fit: Any) -> str:
    """As in ``<asvi.Fit of schools: good, 10 numbers, 0.4 s>``."""
    count = sum(_size(site) for site in fit.program.latent)
    numbers = "1 number" if count == 1 else f"{count:,} numbers"
    return f"<asvi.Fit of {fit.model_name}: {_verdict(fit)}, {numbers}, {_seconds(fit)}>"


def in_text(
    fit: Any, width: int | None = None, settings: DisplaySettings = DisplaySettings()
) -> str:
    """The verdict, a table, the evidence and what to do next; as wide as the terminal."""
    return "\n".join(_lines(fit, width or shutil.get_terminal_size().columns, settings))


class OnConsole:
    """A fit on a console of rich: as :func:`in_text`, with the verdict in its colour."""

    def __init__(self, fit: Any, settings: DisplaySettings = DisplaySettings()):
        self.fit, self.settings = fit, settings

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.text import Text

        verdict = _verdict(self.fit)
        for i, line in enumerate(_lines(self.fit, options.max_width, self.settings)):
            text = Text(line, no_wrap=True, overflow="ignore")
            if i == 0:
                start = line.find(f": {verdict}") + 2
                text.stylize(COLOURS.get(verdict, "bold"), start, start + len(verdict))
            elif line.split() == list(HEAD[1:]):
                text.stylize("bold")
            yield text


def in_html(fit: Any, settings: DisplaySettings = DisplaySettings()) -> str:
    """The same for a notebook; reasons and long sites are unfolded by a click."""
    verdict, reasons = _verdict(fit), _reasons(fit)
    rows: list[Any] = []
    for block in _blocks(fit, settings.unfolded_rows, settings):
        rows += [[row.label, *row.figures] if row.figures else row.label for row in block.shown]
        if block.folded:
            inner = markup.table(HEAD, [[row.label, *row.figures] for row in block.folded])
            rows.append(markup.folded(block.words, inner))
        elif block.words:
            rows.append(markup.paragraph(block.words))
    name = markup.escape(fit.model_name)
    advice, how = markup.escape(_advice(fit)), markup.escape(_how(fit))
    parts = [
        f'<p><b>{name}</b> {markup.badge(verdict)} {advice} <span class="faint">{how}</span></p>',
        markup.table(HEAD, rows),
    ]
    if reasons:
        title = "1 reason" if len(reasons) == 1 else f"{len(reasons)} reasons"
        is_open = verdict == "not trustworthy"
        parts.append(markup.folded(f"Why: {title}", markup.item_list(reasons), is_open=is_open))
    parts += [markup.paragraph(f"note: {note}") for note in _notes(fit)]
    parts.append(markup.paragraph(" · ".join(_last(fit)), "faint"))
    return markup.box(*parts)


def _lines(fit: Any, width: int, settings: DisplaySettings) -> list[str]:
    width = max(width, settings.min_width)
    lines = _head(fit, width)
    blocks = _blocks(fit, 0, settings)
    rows = [row for block in blocks for row in block.shown]
    figures = [HEAD[1:], *(row.figures for row in rows if row.figures)]
    widths = [max(map(len, column)) for column in zip(*figures, strict=True)]
    longest = max([len(row.label) for row in rows if row.figures], default=0)
    label = min(longest, max(8, width - sum(widths) - 3 * len(widths)))
    lines.append(_row(Row("", HEAD[1:]), label, widths))
    for block in blocks:
        lines += [_row(row, label, widths) for row in block.shown]
        if block.words:
            lines.append(f"… {block.words}: result.summary()")
    for mark, texts in (("  - ", _reasons(fit)), ("note: ", _notes(fit))):
        for text in texts:
            indent = " " * len(mark)
            lines += textwrap.wrap(mark + text, width, subsequent_indent=indent)
    return lines + _joined(_last(fit), width)


def _head(fit: Any, width: int) -> list[str]:
    head = f"{fit.model_name}: {_verdict(fit)}. {_advice(fit)}".rstrip()
    how = f"({_how(fit)})"
    if len(head) + len(how) + 2 <= width:
        return (
            [head + how.rjust(min(width, 100) - len(head))] if width >= 100 else [f"{head}  {how}"]
        )
    return [
        *textwrap.wrap(head, width, subsequent_indent="  "),
        *textwrap.wrap(how, width, initial_indent="  ", subsequent_indent="   "),
    ]


def _row(row: Row, label: int, widths: list[int]) -> str:
    if not row.figures:
        return row.label
    name = row.label if len(row.label) <= label else row.label[: label - 1] + "…"
    cells = [text.rjust(width) for text, width in zip(row.figures, widths, strict=True)]
    return "   ".join([name.ljust(label), *cells]).rstrip()


def _joined(parts: list[str], width: int) -> list[str]:
    """Parts on one line, or on as many as they need."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 5 <= width:
            lines[-1] += "     " + part
        else:
            lines.append(part)
    return lines


# --------------------------------------------------------------------------------------- words


def _is_judged(fit: Any) -> bool:
    return fit.correction is not None or fit.problem.arguments.has_data


def _verdict(fit: Any) -> str:
    if _is_judged(fit):
        return str(fit.diagnose().verdict)
    first = next(iter(fit.stored_diagnosis.splitlines()), "")
    return first.removeprefix("verdict: ") or "unknown"


def _advice(fit: Any) -> str:
    if not _is_judged(fit):
        return (
            "Loaded without its data." if fit.stored_diagnosis else "There are no data to judge by."
        )
    advice = fit.diagnose().advice
    return f"{advice[:1].upper()}{advice[1:]}."


def _how(fit: Any) -> str:
    """Where the fit ended, in plain words, and at what cost."""
    parts = []
    if fit.correction is not None:
        made = {"weights": "draws weighted", "moves": "draws moved"}[fit.correction.rung]
        modes = fit.correction.modes
        parts.append(f"{made} at {modes} modes" if modes > 1 else made)
        count = len(fit.correction.pool)
        parts.append(f"{fit.correction.checks.effective_draws:,.0f} effective of {count:,}")
    else:
        steps = f" in {fit.num_steps:,} steps" if fit.num_steps else ""
        parts.append(
            f"guide trained{steps}, draws not corrected" if steps else "draws of the guide"
        )
        if _is_judged(fit):
            report = fit.diagnose()
            parts.append(f"{report.effective_draws:,.0f} effective of {report.num_samples:,}")
    return "; ".join([*parts, _seconds(fit)])


def _seconds(fit: Any) -> str:
    return f"{fit.seconds:.1f} s" if fit.seconds < 100 else f"{fit.seconds:,.0f} s"


def _reasons(fit: Any) -> list[str]:
    if _is_judged(fit):
        return list(fit.diagnose().reasons)
    return [line.removeprefix("  - ") for line in fit.stored_diagnosis.splitlines()[1:]]


def _notes(fit: Any) -> list[str]:
    notes = list(fit.diagnose().notes) if _is_judged(fit) else []
    if fit.correction is None:
        if not any(fit.message in reason for reason in _reasons(fit)):
            notes.append(fit.message)
        if fit.family_reason:
            notes.append(f"family: {fit.family_reason}")
    if fit.run.skipped_steps:
        notes.append(f"{fit.run.skipped_steps} gradients were not finite and were skipped")
    return notes


def _last(fit: Any) -> list[str]:
    """Evidence, ELBO, and what to do next."""
    parts = [f"ELBO {fit.elbo:.2f} ± {fit.elbo_se:.2f}"]
    if fit.correction is not None:
        parts.insert(0, f"log evidence {fit.log_evidence:.2f} ± {fit.log_evidence_se:.2f}")
    if not fit.problem.arguments.has_data:
        return [*parts, "next: result.draws, asvi.load(path, model, *data)"]
    if _verdict(fit) == "not trustworthy":
        return [*parts, "next: result.diagnose(), asvi.plot.pairs(result)"]
    picture = "ppc" if fit.program.observed else "prior_posterior"
    return [*parts, f"next: result.to_arviz(), asvi.plot.{picture}(result)"]


# ---------------------------------------------------------------------------------------- rows


def _size(site: Any) -> int:
    return int(np.prod(site.shape)) if site.shape else 1


def _blocks(fit: Any, unfolded: int, settings: DisplaySettings) -> list[Block]:
    """Rows of each latent site; of a long one the first, and up to ``unfolded`` more, folded."""
    drawn_anew = minibatched(fit.program.latent)
    chains = chains_of(fit)
    sites = [s for s in fit.program.latent if s.name in chains or s.name in drawn_anew]
    shown_sites = sites[: settings.max_sites]
    first = max(1, settings.rows_to_share // max(1, len(sites)) - 1)
    counts = {}
    for site in shown_sites:
        size = _size(site)
        counts[site.name] = size if size <= settings.whole_site else min(size, first)
    flat = {
        site.name: _first(chains[site.name], counts[site.name] + unfolded)
        for site in shown_sites
        if site.name not in drawn_anew
    }
    rows = _rows(fit, flat, {site.name: site.shape for site in shown_sites}, settings)
    blocks = []
    for site in shown_sites:
        name = site.name
        if name in drawn_anew:
            blocks.append(Block([Row(f"{name}: a random {drawn_anew[name]} in each draw")], []))
            continue
        here, more = counts[name], _size(site) - counts[name]
        words = f"{more:,} more of {name}" if more else ""
        folded = rows[name][here:]
        if folded and len(folded) < more:
            words += f" (the first {len(folded)} here)"
        blocks.append(Block(rows[name][:here], folded, words))
    if len(sites) > len(shown_sites):
        blocks.append(Block([], [], f"{len(sites) - len(shown_sites)} more sites"))
    return blocks


def _first(draws: np.ndarray, count: int) -> np.ndarray:
    """Draws (chains, draws, numbers) of the first numbers of a site."""
    return draws.reshape(*draws.shape[:2], -1)[:, :, :count]


def _rows(
    fit: Any,
    flat: dict[str, np.ndarray],
    shapes: dict[str, tuple[int, ...]],
    settings: DisplaySettings,
) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for name, x in flat.items():
        together = np.asarray(x, float).reshape(-1, x.shape[2])
        mean, sd = together.mean(0), together.std(0, ddof=1)
        ends = np.quantile(together, [0.05, 0.95], axis=0)
        decimals = _decimals(sd, settings.digits)
        figures = [[_figure(y, decimals) for y in row] for row in (mean, sd, *ends)]
        labels = []
        for i in range(x.shape[2]):
            at = np.unravel_index(i, shapes[name]) if shapes[name] else ()
            labels.append(f"{name}[{', '.join(map(str, at))}]" if at else name)
        cells = zip(labels, *figures, _effective(fit, labels), strict=True)
        found[name] = [Row(label, tuple(row)) for label, *row in cells]
    return found


def _effective(fit: Any, labels: list[str]) -> list[str]:
    """Effective draws of each number; nothing where they are not known."""
    if not _is_judged(fit):
        return [""] * len(labels)
    errors = errors_of(fit, labels)[0]
    return [f"{error**-2:,.0f}" if error > 0 else "" for error in errors]


def _decimals(sd: np.ndarray, digits: int) -> int | None:
    """So many that a site's numbers are told apart; None where they are too large or small."""
    middle = float(np.median(sd[sd > 0])) if np.any(sd > 0) else 1.0
    if not 1e-4 < middle < 1e6:
        return None
    return max(0, digits - 1 - int(np.floor(np.log10(middle))))


def _figure(x: float, decimals: int | None) -> str:
    text = f"{x:.3g}" if decimals is None or abs(x) >= 1e8 else f"{x:.{decimals}f}"
    return text.removeprefix("-") if text.startswith("-") and float(text) == 0 else text
