"""Operands in the memory of a GPU's host.

Only copies between host and device have such operands: kernels use the memory of their device.
"""

from dataclasses import dataclass

from opcost.errors import OpcostError
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec, tensors_in

COPY = "aten.copy_.default"
_ONLY = "only copy_ between the host and the device has a tensor there, as in copy_(8, 8[pinned])"


@dataclass(frozen=True)
class HostCopy:
    """A copy between the memories of the host and the device; one of its tensors is on the host."""

    to: TensorSpec
    source: TensorSpec

    @property
    def memory(self) -> str:
        """The memory of the host, one of HOST_MEMORIES."""
        memory = self.to.memory or self.source.memory
        assert memory is not None
        return memory

    @property
    def is_to_device(self) -> bool:
        """Whether it is a host-to-device copy."""
        return self.source.memory is not None


def copy_of(operator_tuple: OperatorTuple) -> HostCopy | None:
    """The copy between host and device that a tuple performs; None for another tuple.

    Raises OpcostError for another operator with a tensor in the memory of the host.
    """
    on_host = [spec for _, spec in operator_tuple.tensors if spec.memory is not None]
    if not on_host:
        return None
    if operator_tuple.operator != COPY:
        raise OpcostError(
            f"{operator_tuple} has a tensor in {on_host[0].memory} memory of the host, on which a "
            f"GPU does not compute: {_ONLY}"
        )
    arguments = dict(operator_tuple.arguments)
    [to], [source] = (list(tensors_in(arguments.get(name))) for name in ("self", "src"))
    if to.memory is not None and source.memory is not None:
        raise OpcostError(
            f"{operator_tuple} copies within the memory of the host, which is the work of a "
            f"processor: {_ONLY}"
        )
    return HostCopy(to, source)
