"""Tests, and what they share: helpers are imported from here, as `tests.checkout`."""
