"""Predictions of what nobody measured."""
