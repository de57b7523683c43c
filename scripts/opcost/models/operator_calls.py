"""Every operator call of a block of code, as PyTorch dispatches it: below autograd and above the
kernels.
"""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

_NO_OPERATORS = ("prim", "profiler")
"""Namespaces of queries of a fake tensor's device, and of the profiler's marks."""


class OperatorCalls(TorchDispatchMode):
    """Passes each operator call inside its `with` block to `_called`."""

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute a call, and return its result."""
        return func(*args, **kwargs)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func.namespace in _NO_OPERATORS:
            return func(*args, **(kwargs or {}))
        return self._called(func, args, kwargs or {})
