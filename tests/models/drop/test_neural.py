"""The multilayer perceptron and the ONNX graph that it is saved as."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from scipy.special import expit

from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.scoring.metrics import rank
from foretail.models.scoring.operating_point import choose_network_threshold
from foretail.testing import check_predictor, synthetic_arrivals
from tests.forests import PAPER_INPUTS
from tests.refusals import refusing

if TYPE_CHECKING:
    from foretail.models.drop.network import Network
    from foretail.models.drop.neural import MultilayerPerceptron


X, Y = synthetic_arrivals(rows=20_000, seed=3)
UNSEEN, THEIR_LABELS = synthetic_arrivals(rows=20_000, seed=4)
BEYOND = np.concatenate([UNSEEN, np.zeros((1, 4), np.int32), np.full((1, 4), (1 << 24) - 1, np.int32)])


@pytest.fixture(scope="module")
def trained() -> MultilayerPerceptron:
    from foretail.models.drop.neural import MultilayerPerceptron

    return MultilayerPerceptron(width=16, steps=500).fit(X, Y)


@pytest.fixture(scope="module")
def network(trained: MultilayerPerceptron) -> Network:
    return trained.to_network(PAPER_INPUTS)


@pytest.mark.parametrize("settings", [{"steps": 20}, {"layers": 1, "width": 1, "steps": 1, "batch_rows": 3, "seed": 5}])
def test_it_keeps_the_contract(settings: dict[str, Any]) -> None:
    from foretail.models.drop.neural import MultilayerPerceptron

    check_predictor(MultilayerPerceptron(**settings))


def test_it_learns_rare_drops_and_keeps_their_odds(trained: MultilayerPerceptron) -> None:
    probability = trained.probability(UNSEEN)
    precision = rank(THEIR_LABELS, probability).average_precision
    assert THEIR_LABELS.mean() < 0.03
    assert precision is not None
    assert precision > 0.5  # chance: the share of drops
    assert probability.mean() == pytest.approx(THEIR_LABELS.mean(), rel=0.4)


def test_a_gpu_is_not_made_up() -> None:
    import torch

    from foretail.models.drop.neural import MultilayerPerceptron

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ForetailError, match=r"trainer\.device=cuda finds no GPU for PyTorch"):
        MultilayerPerceptron(device="cuda").fit(X, Y)


def test_the_graph_gives_what_torch_gives(trained: MultilayerPerceptron, network: Network) -> None:
    found, expected = network.probability(BEYOND), trained.probability(BEYOND)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    batches = np.concatenate([network.probability(part) for part in np.array_split(BEYOND, 3)])
    np.testing.assert_allclose(batches, found, rtol=1e-5, atol=1e-7)


def test_a_network_survives_its_file(network: Network, tmp_path: Path) -> None:
    import onnx

    from foretail.models.drop.network import Network

    moved = network.with_threshold(0.125)
    moved.save(tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    again = Network.load(tmp_path / "model.onnx")
    assert (again.features, again.threshold, again.sha256) == (PAPER_INPUTS, 0.125, moved.sha256)
    assert again.sha256 != network.sha256
    assert np.array_equal(again.exceeds(UNSEEN), network.probability(UNSEEN) > 0.125)
    onnx.checker.check_model(again.content, full_check=True)


def test_the_threshold_has_the_highest_f1_of_all(network: Network) -> None:
    probability = network.probability(UNSEEN)
    point = choose_network_threshold(probability, THEIR_LABELS)
    predicted = probability > point.probability
    assert int((predicted & THEIR_LABELS).sum()) == point.confusion.tp
    assert int((predicted & ~THEIR_LABELS).sum()) == point.confusion.fp
    assert point.confusion.rows == len(UNSEEN)
    best = point.confusion.f1
    assert best is not None
    for other in np.quantile(probability, np.linspace(0, 1, 200)):
        claimed = probability > other
        assert 2 * (claimed & THEIR_LABELS).sum() <= best * (claimed.sum() + THEIR_LABELS.sum()) + 1e-9
    with pytest.raises(ForetailError, match="hold no drop"):
        choose_network_threshold(probability, np.zeros_like(THEIR_LABELS))
    everything = choose_network_threshold(np.full(3, 0.5), np.ones(3, np.bool_))
    assert everything.probability < 0.5


def _without(network: Network, key: str, value: str | None) -> bytes:
    import onnx

    model = onnx.load_from_string(network.content)
    (entry,) = (entry for entry in model.metadata_props if entry.key == key)
    if value is None:
        model.metadata_props.remove(entry)
    else:
        entry.value = value
    return bytes(model.SerializeToString())


def test_another_file_is_refused(network: Network, tmp_path: Path) -> None:
    import onnx

    from foretail.models.drop.network import Network

    wrong_output = onnx.load_from_string(network.content)
    wrong_output.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    files = [
        b"",
        b"junk",
        _without(network, "foretail.features", None),
        _without(network, "foretail.features", "[]"),
        _without(network, "foretail.features", '[{"name": "queue"}]'),
        _without(network, "foretail.threshold", "nan"),
        _without(network, "foretail.threshold", "1.5"),
        wrong_output.SerializeToString(),
    ]
    for content in files:
        (tmp_path / "model.onnx").write_bytes(content)
        with pytest.raises(ForetailError, match=r"model\.onnx is not a network of Foretail"):
            Network.load(tmp_path / "model.onnx")
    with pytest.raises(ForetailError, match="cannot be read"):
        Network.load(tmp_path / "missing.onnx")
    broken = onnx.load_from_string(network.content)
    broken.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(ForetailError, match="onnxruntime refuses the network"):
        Network.from_bytes(broken.SerializeToString()).probability(X)


def _modules() -> dict[str, Any]:
    """Modules whose forward does more than their parts in order; each has 4 columns."""
    import torch
    from torch import nn
    from torch.nn.utils import parametrizations, prune

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.middle, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return cast(torch.Tensor, self.last(torch.relu(self.middle(torch.relu(self.first(z))))))

    class Scales(Plain):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return super().forward((z - 900) / 400)

    class Accepts(Plain):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return -super().forward(z.flip(-1))

    class Twice(Plain):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return cast(torch.Tensor, self.last(torch.tanh(self.first(nn.functional.hardsigmoid(self.first(z)))))) * 3

    class Skips(Plain):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return cast(torch.Tensor, self.last(self.middle(nn.functional.leaky_relu(self.first(z) + z, 0.2))))

    class Residual(Plain):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            hidden = torch.relu(self.first(z))
            return cast(torch.Tensor, self.last(torch.relu(self.middle(hidden)) + hidden))

    class Branches(Plain):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return super().forward(z) if z.mean() > 0 else -super().forward(z)

    class Centres(Plain):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return super().forward(z - z[:1])

    class Other(Plain):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return cast(torch.Tensor, self.last(nn.functional.gelu(self.first(z))))

    class Two(Plain):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.first(z))

    def hooked() -> nn.Module:
        module = Plain()
        module.middle.register_forward_hook(lambda _module, _given, out: 300 - out)
        return module

    def loaded(wrap: Callable[[nn.Module], object], kind: torch.dtype = torch.float32) -> nn.Module:
        trained, empty = Plain(), Plain()
        wrap(trained.first)
        wrap(empty.first)
        empty.load_state_dict(trained.state_dict())
        return empty.to(kind)

    def pruned(part: nn.Module) -> object:
        return prune.l1_unstructured(part, "weight", 0.5)  # type: ignore[no-untyped-call]

    def normed() -> nn.Module:
        module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.ReLU(inplace=True), nn.Linear(4, 1))
        module(torch.randn(100, 4))
        return module

    return {
        **{
            kind.__name__: kind
            for kind in (Plain, Scales, Accepts, Twice, Skips, Residual, Branches, Centres, Other, Two)
        },
        "hooked": hooked,
        "old weight_norm": lambda: loaded(nn.utils.weight_norm),
        "weight_norm": lambda: loaded(parametrizations.weight_norm),
        "old spectral_norm": lambda: loaded(nn.utils.spectral_norm),
        "pruned": lambda: loaded(pruned),
        "normed": normed,
        "float64": lambda: Plain().double(),
        "half": lambda: Plain().half(),
        "bfloat16": lambda: Plain().bfloat16(),
        "compiled": lambda: torch.compile(Plain()),
        "no bias": lambda: nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 1)),
        "probability": lambda: nn.Sequential(Plain(), nn.Sigmoid()),
        "convolution": lambda: nn.Sequential(nn.Conv1d(1, 1, 3)),
    }


READ = (
    *("Plain", "Scales", "Accepts", "Twice", "Skips", "hooked", "old weight_norm", "weight_norm", "old spectral_norm"),
    *("pruned", "normed", "float64", "compiled", "no bias", "probability"),
)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:.torch.jit.script_method:DeprecationWarning")
@pytest.mark.parametrize("name", READ)
def test_layers_decide_as_the_forward_of_a_module_does(name: str) -> None:
    import torch

    from foretail.models.drop import neural
    from foretail.models.drop.network import Network, network_columns

    torch.manual_seed(5)
    module = _modules()[name]()
    training = [part.training for part in module.modules()]
    inputs = [FeatureInput("a", "", 12), FeatureInput("b", "", 12)]
    network = Network.of_layers(inputs, np.zeros(4), np.ones(4), neural.layers_of(module))
    assert [part.training for part in module.modules()] == training
    rows = np.random.default_rng(1).integers(0, 1 << 12, (4000, 2)).astype(np.int32)
    module = getattr(module, "_orig_mod", module).eval()
    columns = torch.from_numpy(network_columns(rows)).to(torch.float64 if name == "float64" else torch.float32)
    with torch.no_grad():
        own = module(columns)[:, 0].double().numpy()
    own = own if name == "probability" else expit(own)
    np.testing.assert_allclose(network.probability(rows), own, atol=1e-3)
    assert np.count_nonzero(network.exceeds(rows) != (own > 0.5)) <= 2  # by rounding


def test_a_predictor_whose_network_gives_other_probabilities_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "examples" / "torch_predictor"))
    kind = importlib.import_module("torch_predictor").TorchNetwork

    class Shifted(kind):  # type: ignore[misc, valid-type]
        def _probability(self, x: Any) -> Any:
            return np.clip(super()._probability(x) + 0.25 * (x[:, 0] > 9), 0, 1)

    with pytest.raises(ForetailError, match=r"its network must give its probabilities, not others on .* of 4,066 rows"):
        Shifted(steps=60).fit(X[:4000], Y[:4000]).to_network(PAPER_INPUTS)


@pytest.mark.nightly
def test_the_example_of_a_torch_module_keeps_the_contract_and_goes_to_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foretail.export.network import export_network

    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "examples" / "torch_predictor"))
    example = importlib.import_module("torch_predictor").TorchNetwork
    check_predictor(example(steps=60))
    learned = example().fit(X[:4000], Y[:4000])
    assert learned._probability(X[:5]).dtype == np.float32
    network = learned.to_network(PAPER_INPUTS)
    np.testing.assert_allclose(network.probability(BEYOND), learned.probability(BEYOND), rtol=1e-4, atol=1e-6)
    certificate = export_network(network, tmp_path / "c", rows=(UNSEEN.astype(np.int64), THEIR_LABELS))
    assert certificate.on_rows is not None
    assert certificate.on_rows.decide_otherwise == 0


def perceptron(**parameters: Any) -> MultilayerPerceptron:
    from foretail.models.drop.neural import MultilayerPerceptron

    return MultilayerPerceptron(**parameters)


def layers(name: str) -> object:
    from foretail.models.drop import neural

    return neural.layers_of(_modules()[name]())


@functools.cache
def small() -> MultilayerPerceptron:
    return perceptron(width=2, steps=1).fit(X, Y)


test_what_cannot_be_is_refused = refusing(
    (lambda: perceptron(layers=0).fit(X, Y), r"predictor\.layers"),
    (lambda: perceptron(width=1.5).fit(X, Y), r"predictor\.width"),
    (lambda: perceptron(steps=0).fit(X, Y), r"predictor\.steps"),
    (lambda: perceptron(batch_rows=1).fit(X, Y), r"predictor\.batch_rows"),
    (lambda: perceptron(learning_rate=0).fit(X, Y), r"predictor\.learning_rate = 0 is"),
    (lambda: perceptron(seed=-1).fit(X, Y), r"predictor\.seed"),
    (lambda: perceptron().to_network(PAPER_INPUTS), "not trained"),
    (lambda: small().to_network(PAPER_INPUTS[:3]), "4 features, but 3"),
    (lambda: small().to_network(PAPER_INPUTS).probability(X[:, :3]), "needs 4 feature columns, but got 3"),
    (lambda: small().to_network(PAPER_INPUTS).probability(X.astype(float)), "integers"),
    (lambda: small().to_network(PAPER_INPUTS).probability(-1 - X), "outside"),
    (lambda: layers("Residual"), r"joins values before and behind an activation \(add\), as a residual does"),
    (lambda: layers("Branches"), "cannot be read as a graph"),
    (lambda: layers("Centres"), "differ on some of 4,000 rows"),
    (lambda: layers("Other"), "has the step gelu, which is neither affine nor one of relu"),
    (lambda: layers("Two"), "has not one output for each row"),
    (lambda: layers("half"), r"computes in torch.float16, .*module.float\(\)"),
    (lambda: layers("bfloat16"), r"computes in torch.bfloat16, .*module.float\(\)"),
    (lambda: layers("convolution"), "takes no rows of columns"),
)
