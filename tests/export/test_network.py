"""Networks in integer C: the code is its integers, no input is off by more than the bound, and changes are found."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.export.c.build import PredictorLibrary
from foretail.export.network import export_network
from foretail.export.network.c_header import probes, prove_network, render_network
from foretail.export.network.fixed_point import (
    IN_C,
    FixedNetwork,
    Logarithm,
    fixed_network,
    log_bounds,
    threshold_in_units,
)
from foretail.export.proof import ProofError
from foretail.models.drop.network import ACTIVATIONS, Layer, Network, network_columns
from foretail.models.ensemble.ensemble import FeatureInput
from tests.examples import draws
from tests.refusals import refusing

pytestmark = pytest.mark.slow


def network(
    seed: int,
    features: int,
    widths: Sequence[int] = (),
    size: float = 1.0,
    bits: int = 24,
    threshold: float = 0.5,
    activations: Sequence[str] = ("relu",),
) -> Network:
    """A network of random numbers whose hidden layers have these widths, and these activations in turn."""
    random = np.random.default_rng(seed)
    inputs = [FeatureInput(f"f{at}", "", bits) for at in range(features)]
    scale = np.repeat([random.uniform(1, 1000), random.uniform(0.1, 4)], features)
    mean = (scale * random.uniform(0, 3, 2 * features)).astype(np.float32)
    deviation = (scale * random.uniform(0.5, 2, 2 * features)).astype(np.float32)
    sides = [2 * features, *widths, 1]
    layers = [
        Layer(
            (size * random.normal(size=(after, before)) / before**0.5).astype(np.float32),
            random.normal(size=after).astype(np.float32),
            activations[at % len(activations)],
            slope=0.3,
        )
        for at, (before, after) in enumerate(pairwise(sides))
    ]
    return Network.of_layers(inputs, mean, deviation, layers, threshold)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    return network(
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(1, 3)),
        draw(st.lists(st.integers(1, 6), max_size=3)),
        draw(st.sampled_from([1e-6, 0.1, 1.0, 1.0, 30.0])),
        draw(st.integers(1, 32)),
        draw(st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1)),
        draw(st.lists(st.sampled_from(IN_C), min_size=1, max_size=3)),
    )


def fewer(network: Network, bits: int) -> dict[str, int]:
    """At most so many bits for every feature."""
    return {item.name: min(item.bits, bits) for item in network.features}


def inputs(fixed: FixedNetwork, draw: st.DataObject, rows: int) -> NDArray[np.int64]:
    """Some of the rows that exporting tries, and random ones, all in range."""
    tried = np.clip(probes(fixed, 32), 0, np.array(fixed.largest))
    random = np.random.default_rng(draw.draw(st.integers(0, 2**32 - 1)))
    drawn = random.integers(0, np.array(fixed.largest) + 1, (rows, len(fixed.largest)))
    return np.concatenate([random.permutation(tried)[:rows], drawn])


def log(number: Fraction) -> Fraction:
    """The natural logarithm to 60 digits, which is exact beside any bound here."""
    with localcontext() as context:
        context.prec = 60
        return Fraction((Decimal(number.numerator) / Decimal(number.denominator)).ln())


def _activated(node: onnx.NodeProto, value: Fraction) -> Fraction:
    numbers = {item.name: Fraction(item.f) for item in node.attribute}
    if node.op_type == "HardSigmoid":
        return min(max(value * numbers["alpha"] + numbers["beta"], Fraction(0)), Fraction(1))
    return value if value > 0 else value * numbers.get("alpha", Fraction(0))


def exact_logit(network: Network, row: Sequence[int]) -> Fraction:
    """The logit of the float32 numbers in exact arithmetic, read from the graph node by node."""
    graph = onnx.load_from_string(network.content).graph
    constants = {item.name: onnx.numpy_helper.to_array(item).tolist() for item in graph.initializer}
    behind = [node for node in graph.node if node.op_type in ("Relu", "LeakyRelu", "HardSigmoid")]
    columns = [Fraction(value) for value in row] + [log(Fraction(value + 1)) for value in row]
    z = [
        (column - Fraction(mean)) / Fraction(deviation)
        for column, mean, deviation in zip(columns, constants["mean"], constants["deviation"], strict=True)
    ]
    at = 0
    while f"weight_{at}" in constants:
        z = [_activated(behind[at - 1], value) for value in z] if at else z
        z = [
            sum((Fraction(w) * value for w, value in zip(weight, z, strict=True)), Fraction(bias))
            for weight, bias in zip(constants[f"weight_{at}"], constants[f"bias_{at}"], strict=True)
        ]
        at += 1
    return z[0]


def slow_score(fixed: FixedNetwork, row: Sequence[int]) -> int:
    """The score in Python's integers, with a log that looks for its power of two."""
    table = fixed.logarithm
    columns = [min(max(value, 0), top) for value, top in zip(row, fixed.largest, strict=True)]
    for known in list(columns):
        power = (known + 1).bit_length() - 1
        place = Fraction(known + 1, 1 << power) - 1
        at = int(place * 1024)
        part = (place * 1024 - at) * (int(table.points[at + 1]) - int(table.points[at]))
        columns.append(int(table.powers[power]) + int(table.points[at]) + int(part + Fraction(1, 2)))
    z = [value * 2**scale for value, scale in zip(columns, fixed.scale, strict=True)]
    for at, layer in enumerate(fixed.layers):
        sums = [
            sum(w * value for w, value in zip(weight, z, strict=True)) + bias
            for weight, bias in zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
        ]
        assert all(abs(value) < 2**63 for value in sums)
        if at == len(fixed.layers) - 1:
            return int(sums[0])
        half = Fraction(1, 2) if layer.shift else 0
        z = [int(Fraction(max(value, 0), 2**layer.shift) + half) for value in sums]
    raise AssertionError


@settings(max_examples=draws(100))
@given(networks(), st.integers(1, 32), st.data())
def test_no_score_is_further_from_the_exact_logit_than_the_bound(
    model: Network, bits: int, data: st.DataObject
) -> None:
    fixed = fixed_network(model, fewer(model, bits))
    rows = inputs(fixed, data, 6)
    unit = Fraction(1, 1 << fixed.bits)
    for row, score in zip(rows.tolist(), fixed.score(rows).tolist(), strict=True):
        assert score == slow_score(fixed, row)
        logit = exact_logit(model, row)
        assert abs(score * unit - logit) <= fixed.error
        if 0 < model.threshold < 1:
            threshold = log(Fraction(model.threshold) / (1 - Fraction(model.threshold)))
            if abs(logit - threshold) > fixed.error:
                assert (score > fixed.tau) == (logit > threshold)
        else:
            assert (score > fixed.tau) == (model.threshold == 0)


@settings(max_examples=draws(20))
@given(networks(), st.integers(1, 32), st.data())
def test_the_compiled_code_is_its_integers(model: Network, bits: int, data: st.DataObject) -> None:
    fixed = fixed_network(model, fewer(model, bits))
    texts = render_network(fixed, model.sha256, "drops")
    rows = np.concatenate(
        [inputs(fixed, data, 50), [[data.draw(st.integers(-(2**63), 2**63 - 1))] * len(fixed.largest)]]
    )
    found = prove_network(fixed, model.sha256, texts, "drops", rows.astype(np.int64)).scores
    assert found is not None
    assert found.tolist() == [slow_score(fixed, row) for row in rows.tolist()]


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=10**9, max_denominator=10**12))
def test_bounds_of_a_logarithm_hold_it(number: Fraction) -> None:
    low, high = log_bounds(number)
    assert low - Fraction(1, 10**50) <= log(number) <= high + Fraction(1, 10**50)
    assert 0 <= high - low < Fraction(1, 2**100)


@pytest.mark.parametrize("bits", [8, 17, 26])
def test_integer_logarithms_keep_their_error_up_to_2_to_the_32(bits: int) -> None:
    table = Logarithm.of(bits)
    random = np.random.default_rng(bits)
    powers = (1 << np.arange(33))[:, np.newaxis] + np.arange(-1, 2)
    y = np.unique(
        np.clip(np.concatenate([powers.ravel(), 1 << random.integers(0, 33, 500), np.arange(1, 300)]), 1, 2**32)
    )
    y = np.concatenate([y, random.integers(1, 1 << random.integers(1, 33, 500))])
    off = [
        abs(Fraction(int(found), 1 << bits) - log(Fraction(int(value))))
        for value, found in zip(y, table(y), strict=True)
    ]
    assert max(off) <= table.error < Fraction(3, 1 << bits) + Fraction(1, 1 << 22)


@pytest.mark.parametrize("threshold", [5e-324, 1e-9, 0.25, 0.5, 0.75, 1 - 2**-53])
def test_tau_is_the_logit_of_the_threshold_rounded_down(threshold: float) -> None:
    logit = log(Fraction(threshold) / (1 - Fraction(threshold)))
    for bits in (0, 20, 50):
        assert threshold_in_units(threshold, bits) <= logit * 2**bits < threshold_in_units(threshold, bits) + 1
    assert abs(threshold_in_units(threshold, 61)) < 2**63


def test_every_changed_number_of_the_text_is_found() -> None:
    model = network(3, 2, (3,))
    fixed = fixed_network(model)
    texts = render_network(fixed, model.sha256, "drops")
    header = texts["drops.h"]
    start, end = header.index("#define DROPS_FEATURES"), header.index("/* log y of")
    code = re.sub(r"/\*.*?\*/", lambda comment: " " * len(comment[0]), header, flags=re.DOTALL)
    numbers = list(re.compile(r"(?<!\w)\d+").finditer(code, start, end))
    for match in [*numbers[:12], *numbers[12:-30:60], *numbers[-30:]]:
        changed = f"{header[: match.start()]}{int(match[0]) + 1}{header[match.end() :]}"
        with pytest.raises(ForetailError, match=r"holds other constants|cannot compile"):
            prove_network(fixed, model.sha256, texts | {"drops.h": changed}, "drops")


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("known + 1)", "known + 2)"),
        ("x[i] < 0 ? 0 :", "x[i] < 0 ? 1 :"),
        (": drops_largest[i];", ": drops_largest[i] - 1;"),
        ("_SHIFT_0)", "_SHIFT_0 + 1)"),
        ("((UINT64_C(1) << shift) >> 1)", "0"),
        ("sum <= 0 ? 0", "sum <= 0 ? sum"),
        ("bias += weight[i] * z[i]", "bias -= weight[i] * z[i]"),
        ("drops_powers[k] +", ""),
        ("x + row * DROPS_FEATURES", "x"),
        ("i < 3;", "i < 2;"),
    ],
)
def test_changed_code_is_found(written: str, instead: str) -> None:
    model = network(3, 2, (3,))
    fixed = fixed_network(model)
    texts = render_network(fixed, model.sha256, "drops")
    assert written in texts["drops.h"]
    with pytest.raises(ProofError, match="computes another score"):
        prove_network(fixed, model.sha256, texts | {"drops.h": texts["drops.h"].replace(written, instead)}, "drops")


def test_an_export_is_a_library_and_a_header_of_c99_and_cpp(tmp_path: Path) -> None:
    model = network(5, 3, (8,), threshold=0.3)
    x = np.random.default_rng(1).integers(0, 2000, (5000, 3))
    labels = model.probability(x) > 0.4
    certificate = export_network(model, tmp_path / "c", "drops", rows=(x, labels))
    names = {"drops.h", "drops.c", "drops_selftest.c", "drops.so", "model.onnx", "certificate.json", "digest.json"}
    assert {path.name for path in (tmp_path / "c").iterdir()} == names
    assert (certificate.method, certificate.target) == ("quantised", "c")
    assert certificate.threshold == (0.3).hex()
    library = PredictorLibrary(tmp_path / "c" / "drops.so")
    assert library.default_tau == certificate.default_tau
    assert library.ir_sha256 == model.sha256 == certificate.network_sha256
    logits = np.ldexp(library.score(x).astype(np.float64), -certificate.score_bits)
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), model.probability(x), atol=1e-5)
    assert certificate.on_rows is not None
    assert certificate.on_rows.decide_otherwise == ((library.score(x) > library.default_tau) != model.exceeds(x)).sum()
    assert certificate.on_rows.out_of_range == 0
    probability = 1 / (1 + np.exp(-logits))
    most = np.abs(probability - model.probability(x)).max()
    assert certificate.on_rows.probability_difference == pytest.approx(most, rel=1e-6)
    again = export_network(model, tmp_path / "c", "drops", input_bits=fewer(model, 10), rows=(x, labels))
    assert float(again.error_logit) < float(certificate.error_logit)
    assert again.on_rows is not None
    assert again.on_rows.out_of_range == (x > 1023).any(axis=1).sum() > 0
    for compiler in (["cc", "-std=c99", "-pedantic", "-Wconversion"], ["c++", "-std=c++11", "-xc++"]):
        flags = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        source = tmp_path / "c" / "drops_selftest.c"
        subprocess.run([*compiler, *flags, str(source)], check=True)
    assert (
        re.search(r"\b(float|double)\b|\d\.\d", (tmp_path / "c" / "drops.h").read_text().partition("#ifndef")[2])
        is None
    )


def test_sums_stay_in_64_bits_to_the_sanitizer(tmp_path: Path) -> None:
    for seed, size in ((1, 1.0), (2, 1000.0)):
        model = network(seed, 3, (8, 8), size, bits=32)
        export_network(model, tmp_path / "c", "drops")
        program = tmp_path / "selftest"
        undefined = ["cc", "-std=c99", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
        source = tmp_path / "c" / "drops_selftest.c"
        subprocess.run([*undefined, "-o", str(program), str(source)], check=True)
        assert subprocess.run([program], check=False).returncode == 0


def layers(*weights: NDArray[np.float64]) -> list[Layer]:
    return [Layer(w.astype(np.float32), np.zeros(len(w), np.float32)) for w in weights]


ONE = [FeatureInput("queue", "", 24)]
UNIT = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (
            Network.of_layers(ONE, UNIT, UNIT, layers(np.full((1, 2), 1e30))),
            "layer 1 .* do not fit 64-bit integers: set c.input_bits",
        ),
        (
            Network.of_layers(ONE, UNIT, UNIT, layers(np.full((4, 2), 1e3), np.full((1, 4), 1e25))),
            "layer 2 .* predictor.width",
        ),
        (Network.of_layers(ONE, UNIT, UNIT, layers(np.full((1, 2), np.inf))), "not finite"),
        (
            Network.of_layers(ONE, UNIT, UNIT, layers(np.ones((2**15, 2)), np.ones((1, 2**15)))),
            "98,304 weights, and C takes at most 65,536: train it with a smaller predictor.width",
        ),
        (
            network(1, 1, (2, 2), activations=("leaky_relu", "tanh")),
            "layer 2 of the network has the activation tanh: C takes relu, leaky_relu, hard_sigmoid; train with one",
        ),
    ],
)
def test_what_c_cannot_hold_is_refused(refused: Network, message: str, tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=message):
        export_network(refused, tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_those_of_torch_and_survive_the_graph(activation: str) -> None:
    torch = pytest.importorskip("torch")
    model = network(3, 2, (5, 4), bits=12, activations=(activation,))
    modules = {"relu": torch.nn.ReLU(), "leaky_relu": torch.nn.LeakyReLU(0.3)}
    between = modules | {"hard_sigmoid": torch.nn.Hardsigmoid(), "tanh": torch.nn.Tanh()}
    dense = model.dense_layers()
    assert [layer.activation for layer in dense.layers[:-1]] == [activation] * 2
    x = np.random.default_rng(0).integers(0, 4096, (500, 2))
    z = torch.from_numpy((network_columns(x.astype(np.int32)) - dense.mean) / dense.deviation)
    for at, layer in enumerate(dense.layers):
        z = torch.nn.functional.linear(
            between[activation](z) if at else z, *map(torch.tensor, (layer.weight, layer.bias))
        )
    np.testing.assert_allclose(model.probability(x), torch.sigmoid(z).squeeze(1).numpy(), rtol=1e-4, atol=1e-6)


def layered(mean: Any = UNIT, **changed: Any) -> Network:
    return Network.of_layers(ONE, mean, UNIT, **({"layers": layers(np.ones((1, 2)))} | changed))


test_other_layers_are_refused = refusing(
    (lambda: layered(np.zeros(3)), r"mean and deviation have shapes \(3,\) and \(2,\): give two numbers"),
    (lambda: layered(layers=[Layer(np.ones((1, 3)), np.ones(1))]), r"layer 1 has weights of shape \(1, 3\)"),
    (lambda: layered(layers=[Layer(np.ones((2, 2)), np.ones(2))]), "the last layer must have one output"),
    (
        lambda: layered(layers=[Layer(np.ones((1, 2)), np.ones(1), "gelu")]),
        "activation gelu: choose from relu, leaky_relu",
    ),
)
