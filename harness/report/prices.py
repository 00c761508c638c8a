"""Prices as `bench profit` is given them: on the command line, or from the profiles with their date and source."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UserError
from harness.measure.profit import Prices
from harness.profiles.figures import Price
from harness.profiles.files import GPU_HOUR, TOKEN_PRICES, load_gpu, load_model

PROMPT, OUTPUT = TOKEN_PRICES

# The option that gives each price.
OPTIONS = {PROMPT: "--price-in", OUTPUT: "--price-out", GPU_HOUR: "--gpu-hour"}
_WHAT = {PROMPT: "of a prompt token", OUTPUT: "of an output token", GPU_HOUR: "of a GPU hour"}

# Nobody sells tokens at more than that: a price a million was meant.
_DEAR_TOKEN = 0.01

MILLION = 1_000_000

# Above any price in any currency, and below what overflows in a sum.
MOST = 1e15


@dataclass(frozen=True, slots=True)
class GivenPrices:
    """Prices from the command line, by name; `profile` asks the profiles for the others, `currency` names all."""

    values: dict[str, float]
    profile: bool
    currency: str | None

    @property
    def any(self) -> bool:
        """Whether a profit in money was asked for."""
        return self.profile or bool(self.values)


def read_price(text: str, option: str) -> float:
    """A price: a number, for tokens also `0.2/M` (per million); UserError for what is none."""
    number, slash, unit = text.strip().partition("/")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    per_token = option != OPTIONS[GPU_HOUR]
    if not 0 <= value <= MOST or (slash and (unit != "M" or not per_token)):
        example = (
            "a price per token, such as 2e-7, or per million tokens, such as 0.2/M"
            if per_token
            else "a number, such as 1.9"
        )
        raise UserError(f"{option} {text}: not a price of 0 to {MOST:g}: write {example}")
    return value / MILLION if slash else value


def given_prices(options: dict[str, Any]) -> GivenPrices:
    """The prices among the options of `bench profit`; UserError for one that is none."""
    texts = {PROMPT: options["price_in"], OUTPUT: options["price_out"], GPU_HOUR: options["gpu_hour"]}
    values = {name: read_price(text, OPTIONS[name]) for name, text in texts.items() if text is not None}
    currency = options["currency"]
    if currency is not None and not (currency.isprintable() and 0 < len(currency) <= 8):
        raise UserError("--currency: write a short name, such as USD")
    return GivenPrices(values, options["prices"] == "profile", currency)


def prices_of_runs(
    given: GivenPrices, runs: Sequence[tuple[str, str, int]]
) -> tuple[dict[int, Prices], dict[str, Any]]:
    """The prices of each run by its place in `runs` (GPU, model, how many GPUs serve it), and as JSON values by
    `GPU / model` with sources.

    Both are empty where no price was asked for.
    """
    if not given.any:
        return {}, {}
    prices, sources = {}, {}
    for place, (gpu, model, gpus) in enumerate(runs):
        prices[place], sourced = prices_of(given, gpu, model, gpus)
        several = f"{gpus} × " if gpus > 1 else ""
        sources[f"{several}{gpu} / {model}"] = {name: dataclasses.asdict(sourced[name]) for name in OPTIONS}
    return prices, sources


def price_lines(sources: dict[str, Any]) -> list[str]:
    """A line a price and where it comes from, each once."""
    lines = []
    for pair, prices in sources.items():
        for name, price in prices.items():
            per_token = name in TOKEN_PRICES
            value = f"{price['value'] * MILLION:.6g} a million tokens" if per_token else f"{price['value']:.6g}"
            dated = f"{price['source']}, {price['date']}" if price["date"] else price["source"]
            of = f" of {pair}" if price["date"] else ""
            if per_token and price["value"] > _DEAR_TOKEN:
                value += f" (per million tokens write {OPTIONS[name]} {price['value']:g}/M)"
            lines.append(f"  price {_WHAT[name]}{of}: {price['currency']} {value} ({dated})")
    return list(dict.fromkeys(lines))


def prices_of(given: GivenPrices, gpu: str, model: str, gpus: int = 1) -> tuple[Prices, dict[str, Price]]:
    """The prices for so many GPUs and a model, and each with its source; UserError where one is missing."""
    prices: dict[str, Price] = {}
    if given.profile:
        told = profile_prices(gpu, model, gpus)
        prices |= {name: price for name, price in told.items() if name not in given.values}
    currencies = {price.currency for price in prices.values()} | ({given.currency} if given.currency else set())
    if len(currencies) > 1:
        raise UserError(f"prices of {gpu} are in {' and '.join(sorted(currencies))}: give all in one, with --currency")
    currency = currencies.pop() if currencies else "USD"
    for name, value in given.values.items():
        prices[name] = Price(value, currency, "", f"{OPTIONS[name]} on the command line")
    missing = [name for name in OPTIONS if name not in prices]
    if missing:
        where = f"the profiles of {gpu} and {model} have no price" if given.profile else "there is no price"
        what, options = (" and ".join(names[name] for name in missing) for names in (_WHAT, OPTIONS))
        raise UserError(f"{where} {what}: give {options}")
    return Prices(prices[PROMPT].value, prices[OUTPUT].value, prices[GPU_HOUR].value, currency), prices


def profile_prices(gpu: str | None, model: str, gpus: int = 1) -> dict[str, Price]:
    """The prices that the profiles of a GPU, where one is named, and of a model have, by name.

    An hour is of all GPUs that serve a run, as one that is given is.
    """
    prices: dict[str, Price] = {}
    # A driven server may run a model, or on a GPU, that has no profile: then nothing of it has a price here.
    with contextlib.suppress(UserError):
        if gpu is not None:
            prices |= load_gpu(gpu).prices
    if gpus > 1 and (hour := prices.get(GPU_HOUR)):
        of_each = f"{gpus} GPUs at {hour.value:g} each: {hour.source}"
        prices[GPU_HOUR] = dataclasses.replace(hour, value=gpus * hour.value, source=of_each)
    with contextlib.suppress(UserError):
        prices |= load_model(model).prices
    return prices
