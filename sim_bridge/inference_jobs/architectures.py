"""Operators of four convolutional networks for one picture of 224 x 224, as their public descriptions have them.

The operators are those of a trace of torchvision 0.2 as far as it is known: the input and the size of the batch are
among them, and were chosen so that all four agree with Table 2.2 of Pit-Claudel's thesis. DenseNet reads that size from
what goes into its last activation, the others from what goes into the operator that needs it.
Operations are multiplications and additions; a transfer is a tensor of 32-bit numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from foretail.sim_bridge.inference_jobs.job_graph import JobGraph

_NUMBER_BYTES = 4


@dataclass
class _Tensor:
    """What an operator gives: its task, channels, and rows, which are as many as columns."""

    task: int
    channels: int
    rows: int


@dataclass
class _Network:
    """A graph in the making."""

    operations: list[float] = field(default_factory=list)
    transfers: dict[tuple[int, int], float] = field(default_factory=dict)

    def add(self, operations: float, channels: int, rows: int, *inputs: _Tensor) -> _Tensor:
        task = len(self.operations)
        self.operations.append(operations)
        for given in inputs:
            self.transfers[given.task, task] = _NUMBER_BYTES * given.channels * given.rows**2
        return _Tensor(task, channels, rows)

    def picture(self) -> _Tensor:
        return self.add(0, 3, 224)

    def convolution(self, x: _Tensor, channels: int, kernel: int, stride: int = 1) -> _Tensor:
        rows = x.rows // stride
        return self.add(2.0 * kernel**2 * x.channels * channels * rows**2, channels, rows, x)

    def same(self, x: _Tensor, *others: _Tensor) -> _Tensor:
        """An operation for every number: activation, normalisation, dropout, sum."""
        return self.add(x.channels * x.rows**2, x.channels, x.rows, x, *others)

    def pool(self, x: _Tensor, rows: int) -> _Tensor:
        return self.add(x.channels * x.rows**2, x.channels, rows, x)

    def joined(self, x: _Tensor, other: _Tensor) -> _Tensor:
        return self.add(0, x.channels + other.channels, x.rows, x, other)

    def flat(self, x: _Tensor, size_of: _Tensor | None = None) -> _Tensor:
        size = self.add(0, 1, 1, size_of or x)
        return self.add(0, x.channels * x.rows**2, 1, x, size)

    def linear(self, x: _Tensor, channels: int) -> _Tensor:
        return self.add(2.0 * x.channels * channels, channels, 1, x)

    def classifier(self, x: _Tensor) -> JobGraph:
        """Two hidden layers with dropout, as AlexNet and VGG have them: seven operators."""
        x = self.flat(x)
        for _ in range(2):
            x = self.same(self.same(self.linear(x, 4096)))
        self.linear(x, 1000)
        return self.graph()

    def graph(self) -> JobGraph:
        return JobGraph(tuple(self.operations), self.transfers)


def alexnet() -> JobGraph:
    """Krizhevsky et al., 2012, in one column."""
    net = _Network()
    x = net.same(net.add(2.0 * 11**2 * 3 * 64 * 55**2, 64, 55, net.picture()))
    x = net.pool(x, 27)
    x = net.pool(net.same(net.convolution(x, 192, 5)), 13)
    for channels in (384, 256, 256):
        x = net.same(net.convolution(x, channels, 3))
    return net.classifier(net.pool(x, 6))


def vgg16() -> JobGraph:
    """Simonyan and Zisserman, 2015, configuration D."""
    net = _Network()
    x = net.picture()
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x = net.same(net.convolution(x, channels, 3))
        x = net.pool(x, x.rows // 2)
    return net.classifier(x)


def resnet18() -> JobGraph:
    """He et al., 2016: eight blocks, of which the first one of each later width has a convolution beside it."""
    net = _Network()
    x = net.pool(net.same(net.same(net.convolution(net.picture(), 64, 7, 2))), 56)
    for channels, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        y = net.same(net.same(net.convolution(x, channels, 3, stride)))
        y = net.same(net.convolution(y, channels, 3))
        beside = net.same(net.convolution(x, channels, 1, stride)) if stride > 1 else x
        x = net.same(net.same(y, beside))
    net.linear(net.flat(net.pool(x, 1)), 1000)
    return net.graph()


def densenet121() -> JobGraph:
    """Huang et al., 2017: four blocks with a growth of 32 channels."""
    net = _Network()
    x = net.pool(net.same(net.same(net.convolution(net.picture(), 64, 7, 2))), 56)
    for block, layers in enumerate((6, 12, 24, 16)):
        if block:
            x = net.convolution(net.same(net.same(x)), x.channels // 2, 1)
            x = net.pool(x, x.rows // 2)
        for _ in range(layers):
            y = net.convolution(net.same(net.same(x)), 128, 1)
            x = net.joined(x, net.convolution(net.same(net.same(y)), 32, 3))
    x = net.same(x)
    net.linear(net.flat(net.pool(net.same(x), 1), size_of=x), 1000)
    return net.graph()


ARCHITECTURES: Mapping[str, Callable[[], JobGraph]] = MappingProxyType(
    {"AlexNet": alexnet, "VGG16": vgg16, "ResNet18": resnet18, "DenseNet121": densenet121}
)
