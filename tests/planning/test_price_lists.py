"""`slurmopt plan prices`: lists in the shapes that AWS and SkyPilot give them become a file of prices."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

from slurmopt.importing.price_lists.aws_instances import GPUS
from slurmopt.ledger.prices import parse
from slurmopt.planning.hardware import NAMES, gpu_of

HEADER = (
    "SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate", "Unit", "PricePerUnit",
    "Currency", "LeaseContractLength", "PurchaseOption", "OfferingClass", "Product Family", "Location", "Instance Type",
    "vCPU", "Tenancy", "Operating System", "Pre Installed S/W", "CapacityStatus", "MarketOption", "Region Code",
)  # fmt: skip
RIGHT = {
    "SKU": "A1", "OfferTermCode": "JRTCKXETXF", "TermType": "OnDemand", "Unit": "Hrs", "PricePerUnit": "55.0400000000",
    "Currency": "USD", "Product Family": "Compute Instance", "Location": "US East (N. Virginia)",
    "Instance Type": "p5.48xlarge", "vCPU": "192", "Tenancy": "Shared", "Operating System": "Linux",
    "Pre Installed S/W": "NA", "CapacityStatus": "Used", "MarketOption": "OnDemand", "Region Code": "us-east-1",
}  # fmt: skip
ATTRIBUTES = {
    "instanceType": "p5.48xlarge", "vcpu": "192", "gpu": "8", "tenancy": "Shared", "operatingSystem": "Linux",
    "preInstalledSw": "NA", "capacitystatus": "Used", "marketoption": "OnDemand", "regionCode": "us-east-1",
}  # fmt: skip


def of(**fields: str) -> dict[str, str]:
    return {**RIGHT, **{name.replace("_", " "): value for name, value in fields.items()}}


def aws_csv(*rows: dict[str, str]) -> str:
    before = [
        '"FormatVersion","v1.0"', '"Disclaimer","This is intended for information only, see the site"',
        '"Publication Date","2026-11-09T21:36:02Z"', '"Version","20261109213602"', '"OfferCode","AmazonEC2"',
    ]  # fmt: skip
    lines = [",".join(f'"{row.get(column, "")}"' for column in HEADER) for row in rows]
    return "\n".join([*before, ",".join(f'"{column}"' for column in HEADER), *lines]) + "\n"


def term(price: str, unit: str = "Hrs", currency: str = "USD", **attributes: str) -> dict[str, Any]:
    dimension = {"unit": unit, "pricePerUnit": {currency: price}, "rateCode": "A1.X.Y"}
    return {
        "effectiveDate": "2026-11-01T00:00:00Z",
        "priceDimensions": {"A1.X.Y": dimension},
        "termAttributes": attributes,
    }


def aws_json(on_demand: Any, reserved: Any = None, **attributes: str) -> dict[str, Any]:
    return {
        "formatVersion": "v1.0",
        "publicationDate": "2026-11-09T21:36:02Z",
        "products": {
            "A1": {"sku": "A1", "productFamily": "Compute Instance", "attributes": {**ATTRIBUTES, **attributes}},
            "B2": {"sku": "B2", "productFamily": "Dedicated Host", "attributes": {"regionCode": "us-east-1"}},
        },
        "terms": {"OnDemand": {"A1": {"A1.X": on_demand}}, "Reserved": {"A1": reserved or {}}},
    }


def savings_plan(**rate: Any) -> dict[str, Any]:
    each = {
        "discountedSku": "A1", "discountedUsageType": "BoxUsage:p5.48xlarge", "discountedOperation": "RunInstances",
        "discountedServiceCode": "AmazonEC2", "rateCode": "S.A1", "unit": "Hrs",
        "discountedRate": {"price": "24.08", "currency": "USD"}, "discountedRegionCode": "us-east-1",
        "discountedInstanceType": "p5.48xlarge", **rate,
    }  # fmt: skip
    plan = {
        "sku": "S", "description": "3 year No Upfront Compute Savings Plan", "effectiveDate": "2026-11-02T21:58:42Z",
        "leaseContractLength": {"duration": 3, "unit": "year"}, "rates": [each],
    }  # fmt: skip
    return {"version": "1", "regionCode": "us-east-1", "products": [], "terms": {"savingsPlan": [plan]}}


def spot(zone: str, price: str, at: str, **fields: str) -> dict[str, str]:
    return {
        "AvailabilityZone": zone, "InstanceType": "p5.48xlarge", "ProductDescription": "Linux/UNIX",
        "SpotPrice": price, "Timestamp": at, **fields,
    }  # fmt: skip


def run(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "slurmopt", "plan", "prices", *words]
    return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=180)


def prices(tmp_path: Path, content: Any, *words: str) -> list[dict[str, Any]]:
    (tmp_path / "list").write_text(content if isinstance(content, str) else json.dumps(content))
    done = run(tmp_path, "list", "--json", *words)
    assert done.returncode == 0, done.stderr
    found = data_of(done.stdout)["prices"]
    assert isinstance(found, list)
    return found


def brief(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["gpu"], row["per_hour"], row["kind"], row.get("terms")) for row in rows]


def test_the_csv_of_aws(tmp_path: Path) -> None:
    """Of the rows of an instance one counts; without the filter the least would be a reservation for nothing."""
    content = aws_csv(
        of(),
        of(PricePerUnit="0.0000000000", CapacityStatus="AllocatedCapacityReservation"),
        of(PricePerUnit="99.0", CapacityStatus="UnusedCapacityReservation"),
        of(PricePerUnit="0.0000000000"),
        of(PricePerUnit="60.5", Tenancy="Dedicated"),
        of(PricePerUnit="70.5", Operating_System="Windows"),
        of(PricePerUnit="80.5", **{"Pre_Installed_S/W": "SQL Std"}),
        of(PricePerUnit="90.5", MarketOption="CapacityBlock"),
        of(Instance_Type="m5.large", PricePerUnit="0.1"),
    )
    (row,) = prices(tmp_path, content)
    assert row == {
        "gpu": "H100",
        "per_hour": 6.88,
        "date": "2026-11-09",
        "kind": "on-demand",
        "instance": "p5.48xlarge",
        "source": "AWS price list, us-east-1",
    }


def test_a_reservation_with_a_fee_is_spread_over_its_hours(tmp_path: Path) -> None:
    terms = {"LeaseContractLength": "1yr", "PurchaseOption": "Partial Upfront", "OfferingClass": "standard"}
    half = of(TermType="Reserved", OfferTermCode="HU", PricePerUnit="16.00", **terms)
    fee = of(TermType="Reserved", OfferTermCode="HU", PricePerUnit="140160", Unit="Quantity", **terms)
    found = brief(prices(tmp_path, aws_csv(of(), half, fee)))
    assert found[1] == ("H100", (16 + 140160 / 8760) / 8, "reserved", "1yr Partial Upfront standard")
    attributes = {key: terms[key] for key in terms}
    both = term("16.00", **attributes)
    both["priceDimensions"]["fee"] = {"unit": "Quantity", "pricePerUnit": {"USD": "140160"}}
    assert brief(prices(tmp_path, aws_json(term("55.04"), {"A1.HU": both}))) == found


def test_the_json_of_aws_and_the_answer_of_get_products(tmp_path: Path) -> None:
    whole = aws_json(term("55.04"))
    (row,) = prices(tmp_path, whole)
    one = {
        "product": whole["products"]["A1"],
        "terms": {"OnDemand": whole["terms"]["OnDemand"]["A1"]},
        "publicationDate": whole["publicationDate"],
    }
    assert prices(tmp_path, {"FormatVersion": "aws_v1", "PriceList": [json.dumps(one), "{"]}) == [row]
    assert (row["per_hour"], row["date"]) == (6.88, "2026-11-09")


def test_savings_plans_of_linux_on_shared_hardware(tmp_path: Path) -> None:
    (row,) = prices(tmp_path, savings_plan())
    assert (row["per_hour"], row["kind"], row["date"]) == (3.01, "savings-plan", "2026-11-02")
    assert row["terms"] == "3 year No Upfront Compute Savings Plan"
    assert len(prices(tmp_path, savings_plan(discountedUsageType="USW2-BoxUsage:p5.48xlarge"))) == 1
    for other in ({"discountedOperation": "RunInstances:0002"}, {"discountedUsageType": "DedicatedUsage:p5.48xlarge"}):
        (tmp_path / "list").write_text(json.dumps(savings_plan(**other)))
        assert run(tmp_path, "list").returncode == 2


def test_a_spot_price_counts_for_as_long_as_it_lasted(tmp_path: Path) -> None:
    """Zone a: 8 for 3 days, 40 for 1 day: 16 in the mean; zone b: 20 all the time. The plain mean of a is 24."""
    history = [
        spot("us-east-1a", "40.0", "2026-11-04T00:00:00Z"),
        spot("us-east-1a", "8.0", "2026-11-01T00:00:00+00:00"),
        spot("us-east-1b", "20.0", "2026-11-05T00:00:00Z"),
        spot("us-east-1a", "1.0", "2026-11-01T00:00:00Z", ProductDescription="Windows"),
        spot("us-east-1a", "1.0", "yesterday"),
    ]
    (row,) = prices(tmp_path, {"SpotPriceHistory": history})
    assert (row["per_hour"], row["kind"], row["date"]) == (2.0, "spot", "2026-11-05")
    assert row["terms"] == "us-east-1a, mean from 2026-11-01 on"


CATALOG = """InstanceType,vCPUs,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice
a2,96,A100,8,"{'Gpus': [{'Name': 'A100'}]}",us-east-1,us-east-1a,32.0,16.0
a2,96,A100,8,,us-east-1,us-east-1b,32.0,12.0
a3,96,A100-80GB,8,,us-east-1,us-east-1b,40.0,
a2,96,A100,8,,eu-west-1,eu-west-1a,36.0,9.0
m5,4,,,,us-east-1,us-east-1a,0.2,0.1
"""


def test_a_catalogue_like_that_of_skypilot(tmp_path: Path) -> None:
    found = prices(tmp_path, CATALOG, "--region", "us-east-1", "--date", "2026-11-01")
    assert brief(found) == [
        ("A100 40GB", 4.0, "on-demand", None),
        ("A100 80GB", 5.0, "on-demand", None),
        ("A100 40GB", 1.5, "spot", "us-east-1b"),
    ]


def test_what_is_made_is_a_file_of_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text(aws_csv(of()))
    (tmp_path / "b").write_text(json.dumps(savings_plan()))
    made = run(tmp_path, "a", "b")
    assert "SLURMOPT_PRICES" in made.stderr
    (tmp_path / "prices.yaml").write_text(made.stdout)
    from slurmopt.report.run.price_file import read_prices

    ways = read_prices({"SLURMOPT_PRICES": str(tmp_path / "prices.yaml")}).ways("NVIDIA H100 80GB HBM3", "2026-11-28")
    assert [(way.kind, way.per_hour) for way in ways] == [("on-demand", 6.88), ("savings-plan", 3.01)]


def test_every_gpu_of_an_instance_is_one_that_plans_know() -> None:
    devices = [gpu_of(name, "").device for name in NAMES]
    for instance, (gpu, _) in GPUS.items():
        row = {"gpu": gpu, "per_hour": 1, "date": "2026-01-01", "source": "x"}
        known = parse({"currency": "USD", "prices": [row]}, "")
        assert any(known.price_of(device, "2026-11-01") for device in devices), instance


@pytest.mark.parametrize(
    ("content", "words", "said"),
    [
        ("", (), "is none of AWS's price list of EC2"),
        ("\x00\xff", (), "is none of AWS's price list of EC2"),
        ("a,b\n1,2\n", (), "is none of AWS's price list of EC2"),
        ("{", (), "is none of AWS's price list of EC2"),
        ("[" * 100_000, (), "is none of AWS's price list of EC2"),
        ("{}", (), "is none of AWS's price list of EC2"),
        ('{"terms": {}}', (), "no price of a GPU instance is in it"),
        ('{"terms": {"savingsPlan": 3}}', (), "no price of a GPU instance is in it"),
        (
            '{"products": {"A": {"attributes": {"instanceType": []}}}, "terms": {"OnDemand": []}}',
            (),
            "no price of a GPU",
        ),
        (
            '{"SpotPriceHistory": [1, {"InstanceType": {}, "SpotPrice": NaN}]}',
            (),
            "no price of a GPU instance is in it",
        ),
        (json.dumps(aws_json(term("nan"))), (), "no price of a GPU instance is in it"),
        (json.dumps(aws_json(term("55", currency="CNY"))), (), "has no prices in USD; valid: --currency CNY"),
        (json.dumps(aws_json(term("55"))), ("--region", "mars"), "has no prices of region 'mars'; valid: us-east-1"),
        (json.dumps(aws_json(term("5")) | {"publicationDate": None}), (), "the list has no date; valid: --date"),
        (
            json.dumps(aws_json(term("5"))),
            ("--date", "soon"),
            "plan prices: --date 'soon' is not valid; valid: such as 2026-11-09",
        ),
        (CATALOG.replace("GpuInfo", "Price"), ("--date", "2026-11-01"), "has several columns 'Price'; valid: one"),
        (CATALOG, ("--region", "us-east-1"), "a catalogue has no date; valid: --date"),
        (
            CATALOG,
            ("--date", "2026-11-01"),
            "has prices of 2 regions; valid: --region with one of eu-west-1, us-east-1",
        ),
        (CATALOG.replace("a2,", '"' + "x" * 200_000 + '",'), ("--date", "2026-11-01"), "is none of AWS's"),
    ],
)
def test_what_is_no_price_list_is_told_in_one_line(
    tmp_path: Path, content: str, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "list").write_text(content, errors="surrogateescape")
    done = run(tmp_path, "list", *words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_date_is_for_lists_that_have_none(tmp_path: Path) -> None:
    (row,) = prices(tmp_path, aws_csv(of()), "--date", "2020-01-01")
    assert row["date"] == "2026-11-09"
    (row,) = prices(tmp_path, aws_json(term("5")) | {"publicationDate": None}, "--date", "2020-01-01")
    assert row["date"] == "2020-01-01"


def test_a_list_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(aws_csv(of()))
    assert len(data_of(run(tmp_path, "list", "list", "--json").stdout)["prices"]) == 1


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "no such file or directory" in run(tmp_path, "gone").stderr.lower()
    assert "it is a folder" in run(tmp_path, str(tmp_path)).stderr


def test_of_several_prices_of_an_instance_the_highest_is_taken_and_told(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(aws_csv(of(), of(PricePerUnit="48.0")))
    done = run(tmp_path, "list", "--json")
    assert data_of(done.stdout)["prices"][0]["per_hour"] == 6.88
    assert "p5.48xlarge has 2 prices on-demand: the highest is taken" in done.stderr
