"""`slurmopt plan prices FILE...`: makes a file of prices of the price lists of clouds.

Prints the file as YAML, for SLURMOPT_PRICES. A FILE is one of

    the region file of AWS's bulk price list of EC2, as CSV or JSON, or the answer of `aws pricing get-products`
    AWS's price list of Savings Plans
    the answer of `aws ec2 describe-spot-price-history`
    a catalogue with the columns of SkyPilot's

`--json` prints one object:

    currency prices   as in the file of prices: docs/ledger.md
    remarks           what was decided
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any, TextIO

from slurmopt import command_output
from slurmopt.errors import InputError, one_line, with_place
from slurmopt.importing.price_lists import aws_offers, catalog, savings_plans, spot_history
from slurmopt.importing.price_lists.offers import Offer, chosen, row
from slurmopt.ledger.prices import is_date, parse
from slurmopt.option_parser import OptionParser
from slurmopt.run_folder.access.files import open_regular
from slurmopt.runs import options
from slurmopt.slow_notice import slow_notice

_LARGEST = 2 << 30
"""Bytes of a list that is read as JSON, as a whole. The CSV of the same list is read row by row."""
_METADATA_ROWS = 5
"""Rows before the header in AWS's CSV."""
_FORMS = "AWS's price list of EC2 or of Savings Plans, a spot price history, or a catalogue of SkyPilot"


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    if args.date is not None and not is_date(args.date):
        raise InputError(f"plan prices: --date {one_line(args.date)[:40]!r} is not valid; valid: such as 2026-11-09")
    rows, remarks = [], list[str]()
    for name in args.files:
        place = f"plan prices: {one_line(name)}"
        with slow_notice(f"reading {one_line(name)}"), _told(place):
            offers, said = chosen(_offers(name, args.date), args.region, args.currency)
            rows += [made for offer in offers if (made := _row(offer)) not in rows]
            remarks += said
    made = {"currency": args.currency, "prices": rows}
    parse(made, "plan prices")
    today = time.strftime("%Y-%m-%d", time.gmtime())
    remarks += sorted({f"prices of {each['date']} are not valid yet" for each in rows if each["date"] > today})
    for remark in remarks:
        command_output.warn(remark)
    if args.json:
        command_output.print_json({**made, "remarks": remarks})
    else:
        _print(made)
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt plan prices`."""
    parser = OptionParser("slurmopt plan prices", description="Make a file of prices of the price lists of clouds.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="price lists, in their original form")
    parser.add_argument("--region", metavar="REGION", help="such as us-east-1, where a list has several")
    parser.add_argument("--currency", default="USD", metavar="CODE", help="(default: USD)")
    parser.add_argument("--date", metavar="DATE", help="such as 2026-11-09, for a list that has no date")
    options.add_json(parser)
    return parser


@contextmanager
def _told(place: str) -> Iterator[None]:
    """Errors of one file, in one line that names it."""
    try:
        yield
    except OSError as error:
        raise InputError(f"plan prices: cannot read {one_line(with_place(error))}") from error
    except (ValueError, RecursionError, csv.Error, MemoryError) as error:
        reason = one_line(str(error))[:100] or type(error).__name__
        raise InputError(f"{place}: is none of {_FORMS}: {reason}") from error
    except InputError as error:
        raise InputError(f"{place}: {error}") from error


def _offers(name: str, date: str | None) -> list[Offer]:
    with io.TextIOWrapper(open_regular(name), encoding="utf-8", errors="replace", newline="") as file:
        start = file.read(1 << 12)
        file.seek(0)
        if start.lstrip("\ufeff \r\n\t").startswith(("{", "[")):
            return list(_of_json(file, date))
        header = next(csv.reader(io.StringIO(start)), [])
        if twice := sorted({name for name in header if header.count(name) > 1}):
            raise InputError(f"has several columns {one_line(twice[0])!r}; valid: one")
        if header[:1] == ["FormatVersion"]:
            return list(_of_aws_csv(file, date))
        if set(catalog.COLUMNS) <= set(header):
            if date is None:
                raise InputError("a catalogue has no date; valid: --date with that of its prices, such as 2026-11-09")
            return list(catalog.of_csv(csv.DictReader(file), date))
    raise ValueError("no such header")


def _of_aws_csv(file: TextIO, date: str | None) -> Iterator[Offer]:
    metadata = {line[0]: line[1] for line in islice(csv.reader(file), _METADATA_ROWS) if len(line) > 1}
    published = metadata.get("Publication Date", "")[:10] or date or ""
    return aws_offers.of_csv(csv.DictReader(file), published)


def _of_json(file: TextIO, date: str | None) -> Iterator[Offer]:
    if file.seek(0, io.SEEK_END) > _LARGEST:
        raise InputError(f"has more than {_LARGEST >> 30} GiB; valid: the same list as CSV, which is read row by row")
    file.seek(0)
    value = json.load(file)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    for offer in _of_object(value, aws_offers.date_of(value)):
        yield offer if offer.date or date is None else replace(offer, date=date)


def _of_object(value: Mapping[str, Any], date: str) -> Iterator[Offer]:
    if "SpotPriceHistory" in value:
        return spot_history.of_json(value)
    if "PriceList" in value:
        return aws_offers.of_products(value)
    terms = value.get("terms")
    if not isinstance(terms, dict):
        raise ValueError("no `terms`")
    return savings_plans.of_json(value) if "savingsPlan" in terms else aws_offers.of_json(value, date)


def _row(offer: Offer) -> dict[str, Any]:
    if not offer.date:
        raise InputError("the list has no date; valid: --date with that of its prices, such as 2026-11-09")
    return row(offer)


def _print(made: dict[str, Any]) -> None:
    from slurmopt.grid.yaml_dump import dump

    print(dump(made), end="")
    print("next      write this to a file, and export SLURMOPT_PRICES=FILE", file=sys.stderr)
