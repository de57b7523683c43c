"""Limits of indices are followed where values are kept, and forgotten where they may change."""

import pytest
import torch
from opcost.errors import OpcostError
from opcost.models.definition import InputSpec
from opcost.tuples.index_limits import IndexLimits
from torch.nn import functional

TABLE = torch.zeros(10, 2)
IDS = InputSpec((4,), "int64", 50)


def look_up(change):
    """Look up what is made of the indices of an input, which are below 50."""
    given = torch.zeros(4, dtype=torch.int64)
    with torch.inference_mode(), IndexLimits([(given, IDS)]):
        functional.embedding(change(given), TABLE)


@pytest.mark.parametrize(
    "change",
    [
        lambda ids: ids,
        lambda ids: ids.view(2, 2),
        lambda ids: ids.to(torch.int32).to(torch.int64),
        lambda ids: ids[:2],
        lambda ids: ids.unsqueeze(0).expand(3, 4),
        lambda ids: ids + 2,
    ],
)
def test_indices_that_may_exceed_the_table_are_found_behind_views_and_copies(change):
    with pytest.raises(OpcostError, match="do not fit 10 rows"):
        look_up(change)


@pytest.mark.parametrize(
    "look_up",
    [
        lambda ids, table: functional.embedding(ids, table, max_norm=1.0),
        lambda ids, table: table.gather(0, ids.view(-1, 1)),
        lambda ids, table: table.index_select(0, ids),
        lambda ids, table: table.take_along_dim(ids.view(-1, 1), 0),
        lambda ids, table: table[ids],
        lambda ids, table: table.scatter_add(0, ids.view(-1, 1), table),
        lambda ids, table: functional.one_hot(ids, 10),
        lambda ids, table: functional.cross_entropy(torch.zeros(4, 10), ids),
    ],
)
def test_so_are_those_of_whatever_looks_something_up(look_up):
    given = torch.zeros(4, dtype=torch.int64)
    refused = pytest.raises(OpcostError, match="indices from 0 to 49 do not fit 10")
    with torch.inference_mode(), IndexLimits([(given, IDS)]), refused:
        look_up(given, TABLE.clone())


def test_indices_counted_from_the_end_fit():
    given = torch.zeros(4, dtype=torch.int64)
    with torch.inference_mode(), IndexLimits([(given, InputSpec((4,), "int64", 10, -10))]):
        TABLE[given]


def test_so_are_those_of_bags():
    with pytest.raises(OpcostError, match="do not fit 10 rows"):
        look_up(lambda ids: functional.embedding_bag(ids, TABLE, torch.tensor([0, 2])).long())


@pytest.mark.parametrize(
    "change",
    [
        lambda ids: ids % 10,
        lambda ids: ids.clamp(0, 9),
        lambda ids: ids.remainder_(10),
        lambda ids: ids.view(2, 2).clamp_(0, 9),
        lambda ids: (ids.clamp_(0, 9), ids)[1],
    ],
)
def test_indices_that_were_made_to_fit_are_let_through(change):
    look_up(change)


def test_a_part_of_more_positions_than_a_model_has_is_let_through_and_all_are_not():
    with torch.inference_mode(), IndexLimits([]):
        functional.embedding(torch.arange(50)[:8], TABLE)
        with pytest.raises(OpcostError, match="it counts 12 positions, of which the model has 10"):
            functional.embedding(torch.arange(12), TABLE)
