"""The page: all sections in one self-contained HTML file."""

import base64
import gzip
import itertools
import json
from datetime import datetime
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from opcost import __version__
from opcost.costs import caveats, in_context_text
from opcost.costs.breakdown import OTHERS
from opcost.costs.headline import ESTIMATED
from opcost.costs.launches import launch_cells
from opcost.costs.requests import request_cells, request_notes
from opcost.files import replacing
from opcost.launch_modes import FURTHER_MODES_TEXT
from opcost.report import cards, roofline
from opcost.report.agreement import (
    agreement,
    all_caveats,
    all_waits,
    operators_in_context,
)
from opcost.report.chart_library import chart_library
from opcost.report.colours import Colours, colours
from opcost.report.icicles import icicles
from opcost.report.operator_costs import by_operator, legend, stacks
from opcost.report.operator_table import operator_table
from opcost.report.quality import quality
from opcost.report.results import Results
from opcost.report.row_details import CHUNK, STEP, chunks, common, raw_charts
from opcost.report.sweeps import sweeps
from opcost.rows import schemas
from opcost.rows.flags import FLAGS
from opcost.rows.quantities import COMPARED, POWER, TIME
from opcost.rows.schemas import SCHEMA_VERSION

_ABSOLUTE = 12  # more models than these are first shown in shares
_SCRIPTS = ("icicle.js", "table.js", "page.js")  # one module: the last one starts
_ASSETS = files("opcost.report") / "assets"


def write_report(results: Results, path: Path) -> None:
    """Write the page, completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(render(results), encoding="utf-8")


def render(results: Results) -> str:
    """The page as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"script_json": script_json, "packed": packed}
    return environment.get_template("page.html").render(**_sections(results), **_libraries())


def script_json(data: Any) -> Markup:
    """JSON for a script element, escaped so that no text in it can end the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def packed(data: Any) -> str:
    """JSON data, or a text as it is, as base64 of gzip, which the browser unpacks on demand. The
    same data give the same text.
    """
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _sections(results: Results) -> dict[str, Any]:
    named = colours(results.comparison, results.shares)
    as_shares = len(results.models) > _ABSOLUTE
    listed = cards.cards(results, named)
    quantities = COMPARED if results.targets_with_energy else [TIME]
    stacked = {
        (quantity, target): found
        for quantity, target in itertools.product(quantities, results.targets)
        if (
            found := stacks(results.compared(target), results.shares_on(target), quantity, named)
        ).bars
    }
    names = {name for found in stacked.values() for name in found.names}
    return {
        "source": results.source,
        "left_out": results.left_out,
        "targets": results.targets,
        "summary": _summary(results),
        "cards": listed,
        "with_cards": len(listed) <= cards.MOST_CARDS,
        "same_inputs": len({(card.inputs, card.dtype) for card in listed}) == 1,
        "has_estimates": any(cost.mark == ESTIMATED for card in listed for cost in card.costs),
        "quantities": quantities,
        "without_energy": cards.without_energy(results),
        "side_by_side": list(cards.side_by_side(results)),
        "sweeps": sweeps(results),
        "agreements": [agreement(results, quantity) for quantity in quantities],
        "caveats": all_caveats(results),
        "words": caveats,
        "waits": all_waits(results),
        "in_context": in_context_text.difference_cells(results.comparison),
        "in_context_words": in_context_text,
        "operators_in_context": operators_in_context(results),
        "launches": launch_cells(results.launches),
        "launch_modes": FURTHER_MODES_TEXT,
        "requests": request_cells(results.requests),
        "request_notes": request_notes(results.requests),
        "by_operator": [
            by_operator(found, target, quantity, named, as_shares)
            for (quantity, target), found in stacked.items()
        ],
        "legend": legend(names, named),
        "as_shares": as_shares,
        "icicles": icicles(results),
        "rooflines": {target: roofline.drawn(results, target, named) for target in results.targets},
        "table": operator_table(results),
        "operators": len(results.database),
        "chunks": chunks(results.database),
        "details": _details(results, named),
        "quality": quality(results),
    }


def _summary(results: Results) -> dict[str, Any]:
    """The figures at the top of the page."""
    frame = results.operators
    begun, ended = frame["measured_at"].dropna(), frame["ended_at"].dropna()
    devices = frame.dropna(subset="device_name").groupby("target", sort=False)["device_name"]
    return {
        "models": len(results.models),
        "operators": int(frame["tuple_id"].nunique()),
        "kinds": int(frame["name"].nunique()),
        "devices": {target: " and ".join(names.unique()) for target, names in devices},
        "measured": None if begun.empty else _span(begun.min(), max(begun.max(), ended.max())),
        "versions": ", ".join(sorted(frame["opcost_version"].dropna().unique())),
        "opcost_version": __version__,
        "schema_version": SCHEMA_VERSION,
    }


def _span(first: datetime, last: datetime) -> str:
    end = f"{last:%H:%M}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M}"
    return f"{first:%Y-%m-%d %H:%M} to {end} UTC"


def _details(results: Results, named: Colours) -> dict[str, Any]:
    """The data that the page's script needs to show a row."""
    return {
        "common": common(results.database),
        "meanings": schemas.DESCRIPTIONS["database"],
        "flags": {name: flag.meaning for name, flag in FLAGS.items()},
        "colours": {name: [named.of(name), named.ink(name)] for name in [*named.names, OTHERS]},
        "step": STEP,
        "chunk": CHUNK,
        "quantities": {str(each): each.names for each in (TIME, POWER)},
        "charts": raw_charts(),
    }


def _libraries() -> dict[str, str]:
    """Vega for charts and DataTables for tables, as modules; and our own style."""
    return {
        "vega": chart_library(),
        "datatables": _read(_datatables("dt_bundle.js")),
        "datatables_style": Markup(_read(_datatables("dt_bundle.css"))),
        "style": Markup(_asset("page.css")),
        "script": Markup("".join(map(_asset, _SCRIPTS))),
    }


def _datatables(name: str) -> Any:
    """A file of itables, without the import of itables and of all that it can make tables of."""
    return distribution("itables").locate_file(f"itables/html/{name}")


def _asset(name: str) -> str:
    return _read(_ASSETS / name)


def _read(path: Any) -> str:
    return path.read_text(encoding="utf-8")
