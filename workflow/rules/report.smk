# What a person looks at.
#
#   in:  results/database.parquet, comparison.parquet, shares.parquet, modules.parquet, models.parquet
#   out: results/report.html   charts and tables of all of it, in one file that opens offline


rule report:
    input:
        manifest="results/operator_tuples.json",
        database="results/database.parquet",
        comparison="results/comparison.parquet",
        shares="results/shares.parquet",
        modules="results/modules.parquet",
        models="results/models.parquet",
    output:
        page=report("results/report.html", caption="../report/report.rst", category="Report"),
        note="results/.made/report.json",
    log:
        "logs/report.log",
    conda:
        "../../envs/opcost.yaml"
    resources:
        processor=1,
    params:
        asked=ASKED["report"],
        conditions=CONDITIONS,
    message:
        "Writing the report"
    script:
        "../../scripts/report.py"
