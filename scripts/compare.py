"""Rule compare: sums over operators against whole models."""

from pathlib import Path

from opcost import records, schemas
from opcost.comparison import OPERATOR_COLUMNS, compare_study
from opcost.errors import reported
from opcost.figure import draw
from opcost.files import replacing
from opcost.manifest import read_manifest, read_model_tuples
from opcost.summary import summarise

files, outputs = snakemake.input, snakemake.output
with reported(snakemake.log[0]):
    comparison, shares = compare_study(
        [read_model_tuples(Path(path)) for path in files.tuples],
        records.read(Path(files.database), schemas.OPERATOR, OPERATOR_COLUMNS).to_pylist(),
        records.read_all(map(Path, files.again), schemas.OPERATOR, OPERATOR_COLUMNS).to_pylist(),
        records.read_all(map(Path, files.models), schemas.MODEL).to_pylist(),
        read_manifest(Path(files.manifest)),
    )
    for rows, schema, parquet, csv in (
        (comparison, schemas.COMPARISON, outputs.comparison, outputs.comparison_csv),
        (shares, schemas.SHARES, outputs.shares, outputs.shares_csv),
    ):
        records.write(Path(parquet), schema, rows)
        with replacing(Path(csv)) as temporary:
            records.read(Path(parquet), schema).to_pandas().to_csv(temporary, index=False)
    with replacing(Path(outputs.summary)) as temporary:
        temporary.write_text(summarise(comparison, shares) + "\n", encoding="utf-8")
    draw(Path(outputs.figure), comparison, shares)
