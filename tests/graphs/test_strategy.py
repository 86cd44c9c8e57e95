"""The strategy draws what it is meant to draw: every feature of a graph, and every end of a run, comes up."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import SearchStrategy

from . import vocabulary
from .description import Graph, Materials
from .features import features, happenings
from .models import EVERY_MODEL, NOISY_MODELS
from .naive import evaluate
from .strategy import GIVEN_INPUTS, GIVEN_OUTPUTS, graphs
from .ways import SYNCHRONOUS, WAYS

EXPECTED = {
    *(f"function: {kind}" for kind in (*vocabulary.FUNCTIONS, *vocabulary.IN_PLACE_FUNCTIONS, "linear", "raise")),
    *(f"constant: {kind}" for kind in vocabulary.CONSTANTS),
    *(f"module: {model}" for model in (*EVERY_MODEL, "wrap")),
    *(f"given: {kind}" for kind in (*GIVEN_INPUTS, *GIVEN_OUTPUTS)),
    *(f"source adapter: output {name}" for name in (None, *vocabulary.OF_OUTPUT_SOURCE)),
    *(f"source adapter: input {name}" for name in (None, *vocabulary.OF_INPUT_SOURCE)),
    *(f"destination adapter: input {name}" for name in (None, *vocabulary.OF_INPUT_DESTINATION)),
    *(f"destination adapter: output {name}" for name in (None, *vocabulary.OF_OUTPUT_DESTINATION)),
    *(f"reducer: input {name}" for name in (None, *vocabulary.INPUT_REDUCERS, "wrong_type")),
    *(f"reducer: output {name}" for name in (None, *vocabulary.PLAIN_OUTPUT_REDUCERS)),
    *(f"reducer: output {name}" for name in vocabulary.REQUIRING_OUTPUT_REDUCERS),
    *(f"size {size} or less" for size in (5, 10, 15, 20, 25, 30)),
    *(f"early exit {value}" for value in (True, False)),
    *(f"{one} to {other}" for one in ("input", "output") for other in ("input", "output")),
    *(f"{end}: {where} {kind}" for end in ("capture", "override") for where in ("root", "inner") for kind in
      ("input", "output")),
    *(f"capture: call={call}" for call in (None, 0, "k", "last", "all")),
    *(f"override: call={call}" for call in (None, 0, "k")),
    *(f"{end}: {what}" for end in ("capture", "override") for what in ("tied name", "a later call of several")),
    "one module in two targets",
    "one source descriptor in several stitches",
    "one destination descriptor in several stitches",
    "the same two descriptors stitched again",
    "several stitches on one port",
    "reducers that require the original beside others on one port",
    "override that skips",
    "a port both overridden and captured",
    "one submodule overridden by two of its names",
    "f(x, x)",
    "a function without arguments",
    "external to external",
    "shuffled stitches",
    "values due",
    "several errors possible",
    "a consumer changes its value in place",
    *(f"error due: {kind}, certain True" for kind in ("raised", "unreached", "changed", "wrong type", "overrides")),
    "error due: changed, certain False",
}  # fmt: skip


# Of graphs that run on a loop; where they are meant to fail; where values are meant to be changed.
EXPECTED_OF_WAYS = {
    *(f"{way}: {kind}" for way in WAYS for kind in ("blend", "identity", "linear")),
    *(f"{way} to a {kind}" for way in WAYS for kind in ("function", "module", "external")),
    *(f"{way} from a {kind}" for way in WAYS for kind in ("function", "module", "external", "constant")),
    "functions given in several ways",
    "a synchronous call needs a loop",
    "a synchronous call is refused",
    "an order though some run on the loop",
}
EXPECTED_OF_FAILING_WAYS = {
    *(f"{way}: raise" for way in WAYS),
    "error due on a loop: raised",
    "something is run on a loop because its module has not failed yet",
    "several errors possible",
    "values due",
}
EXPECTED_OF_CHANGING_WAYS = {
    *(f"{way}: {kind}" for way in WAYS for kind in vocabulary.IN_PLACE_FUNCTIONS),
    "error due on a loop: changed",
    "error due: changed, certain False",
    "values due",
}
# Of graphs that draw random numbers.
EXPECTED_OF_NOISE = {
    "function: noise",
    *(f"module: {model}" for model in NOISY_MODELS),
    *(f"{way}: noise" for way in SYNCHRONOUS),
    *(f"{end} adapter: {kind} noise" for end in ("source", "destination") for kind in ("input", "output")),
}


def missing(expected: set[str], drawn: SearchStrategy[Graph], *, evaluated: bool = True) -> set[str]:
    """What of the expected does not come up in a long run of draws."""
    seen: Counter[str] = Counter()

    def nothing_is_missing(graph: Graph) -> bool:
        seen.update(features(graph))
        if evaluated:
            outcome, _ = evaluate(graph, Materials(graph))
            seen.update(happenings(outcome))
        return seen.keys() >= expected

    # Drawing stops with the graph that completes the collection.
    long_enough = settings(
        max_examples=1500,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    with suppress(NoSuchExample):
        find(drawn, nothing_is_missing, settings=long_enough)
    return expected - seen.keys()


def test_everything_comes_up() -> None:
    assert missing(EXPECTED, graphs()) == set()


def test_functions_given_in_every_way_come_up() -> None:
    assert missing(EXPECTED_OF_WAYS, graphs(ways=WAYS), evaluated=False) == set()


def test_functions_that_fail_in_every_way_come_up() -> None:
    assert missing(EXPECTED_OF_FAILING_WAYS, graphs(ways=WAYS, surely="raise")) == set()


def test_functions_that_change_a_value_in_every_way_come_up() -> None:
    assert missing(EXPECTED_OF_CHANGING_WAYS, graphs(ways=WAYS, surely="in_place")) == set()


def test_random_numbers_come_up() -> None:
    assert missing(EXPECTED_OF_NOISE, graphs(ways=SYNCHRONOUS, noise=True), evaluated=False) == set()
