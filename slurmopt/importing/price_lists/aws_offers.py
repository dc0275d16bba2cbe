"""AWS's list of EC2 prices: the region file of the bulk list as CSV or JSON, or the answer of `aws pricing
get-products`.

Of the many rows of an instance those count that are for Linux on shared hardware, without extra software, used now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from slurmopt.importing.price_lists.aws_instances import GPUS
from slurmopt.importing.price_lists.offers import Offer, amount, mapping
from slurmopt.ledger.prices import ON_DEMAND, RESERVED
from slurmopt.run_folder.json_values import text

SOURCE = "AWS price list"
_HOURS_OF_YEAR = 8760
_ONLY = {
    "tenancy": "Shared",
    "operatingSystem": "Linux",
    "capacitystatus": "Used",
    "preInstalledSw": "NA",
    "marketoption": "OnDemand",
}
_HEADERS = {
    "tenancy": "Tenancy",
    "operatingSystem": "Operating System",
    "capacitystatus": "CapacityStatus",
    "preInstalledSw": "Pre Installed S/W",
    "marketoption": "MarketOption",
    "instanceType": "Instance Type",
    "regionCode": "Region Code",
}
"""Attribute of the JSON → column of the CSV."""
_YEARS = {"1yr": 1, "3yr": 3}


def of_csv(rows: Iterable[Mapping[str, str]], date: str) -> Iterator[Offer]:
    """The offers in the rows of the CSV. A reservation has one row for its fee and one for its hours."""
    parts: dict[tuple[str, str], tuple[Offer, float]] = {}
    for row in rows:
        attributes = {name: row.get(header) for name, header in _HEADERS.items()}
        kind = {"OnDemand": ON_DEMAND, "Reserved": RESERVED}.get(row.get("TermType") or "")
        if kind is None or not _counts(attributes, row.get("Unit")):
            continue
        price = amount(row.get("PricePerUnit") or "")
        terms, hourly = _terms(kind, row), price
        if row.get("Unit") == "Quantity":
            hourly = None if price is None else _spread(price, row.get("LeaseContractLength"))
        if hourly is None or (kind == RESERVED and row.get("LeaseContractLength") not in _YEARS):
            continue
        offer = _offer(attributes, hourly, row.get("Currency") or "", date, kind, terms)
        if kind == ON_DEMAND:
            yield offer
            continue
        key = (row.get("SKU") or "", row.get("OfferTermCode") or "")
        parts[key] = (offer, parts[key][1] + hourly if key in parts else hourly)
    yield from (replace(offer, per_hour=hourly) for offer, hourly in parts.values())


def of_json(value: Mapping[str, Any], date: str) -> Iterator[Offer]:
    """The offers of the region file, or of one product of `get-products` put into its form."""
    products, terms = mapping(value.get("products")), mapping(value.get("terms"))
    for sku, product in products.items():
        attributes = mapping(mapping(product).get("attributes"))
        if not _counts(attributes, "Hrs"):
            continue
        for name, kind in (("OnDemand", ON_DEMAND), ("Reserved", RESERVED)):
            for term in mapping(mapping(terms.get(name)).get(sku)).values():
                yield from _of_term(attributes, mapping(term), kind, date)


def of_products(value: Mapping[str, Any]) -> Iterator[Offer]:
    """The offers in the answer of `aws pricing get-products`: a list of texts, each a product with its terms."""
    listed = value.get("PriceList")
    for each in listed if isinstance(listed, list) else []:
        try:
            one = mapping(json.loads(each) if isinstance(each, str) else each)
        except ValueError:
            continue
        product, terms = mapping(one.get("product")), mapping(one.get("terms"))
        sku = text(product.get("sku")) or ""
        yield from of_json({"products": {sku: product}, "terms": _by_sku(terms, sku)}, date_of(one))


def date_of(value: Mapping[str, Any]) -> str:
    """The day on which a list was published, such as 2026-11-09; empty where it does not say."""
    return (text(value.get("publicationDate")) or "")[:10]


def _by_sku(terms: Mapping[str, Any], sku: str) -> dict[str, Any]:
    return {name: {sku: term} for name, term in terms.items()}


def _of_term(attributes: Mapping[str, Any], term: Mapping[str, Any], kind: str, date: str) -> Iterator[Offer]:
    length = text(mapping(term.get("termAttributes")).get("LeaseContractLength"))
    sums: dict[str, float] = {}
    for dimension in mapping(term.get("priceDimensions")).values():
        unit = mapping(dimension).get("unit")
        for currency, price in mapping(mapping(dimension).get("pricePerUnit")).items():
            value = amount(price)
            if value is not None and unit == "Quantity":
                value = _spread(value, length)
            if value is not None and unit in ("Hrs", "Quantity"):
                sums[currency] = sums.get(currency, 0.0) + value
    if kind == RESERVED and length not in _YEARS:
        return
    terms = _terms(kind, mapping(term.get("termAttributes")))
    for currency, hourly in sums.items():
        yield _offer(attributes, hourly, currency, date, kind, terms)


def _spread(fee: float, length: str | None) -> float | None:
    """A fee by the hours of its term."""
    years = _YEARS.get(length or "")
    return None if years is None else fee / (years * _HOURS_OF_YEAR)


def _terms(kind: str, row: Mapping[str, Any]) -> str | None:
    if kind == ON_DEMAND:
        return None
    return " ".join(
        str(row.get(key) or "") for key in ("LeaseContractLength", "PurchaseOption", "OfferingClass")
    ).strip()


def _counts(attributes: Mapping[str, Any], unit: str | None) -> bool:
    if text(attributes.get("instanceType")) not in GPUS or unit not in ("Hrs", "Quantity"):
        return False
    return all(attributes.get(name) == value for name, value in _ONLY.items())


def _offer(
    attributes: Mapping[str, Any], hourly: float, currency: str, date: str, kind: str, terms: str | None
) -> Offer:
    instance = str(attributes["instanceType"])
    gpu, gpus = GPUS[instance]
    region = text(attributes.get("regionCode")) or "?"
    return Offer(
        instance=instance, gpu=gpu, gpus=gpus, per_hour=hourly, currency=currency, date=date, kind=kind, region=region,
        source=SOURCE, terms=terms,
    )  # fmt: skip
