# What a person looks at.
#
#   in:  results/database.parquet, answers.parquet, shares.parquet, modules.parquet, models.parquet,
#        in_context.parquet, launches.parquet, requests.parquet, sweeps.parquet
#   out: results/report.html   charts and tables of all of it, in one file that opens offline
#        results/cost.svg      operators, stacked, above the whole model
#
# No other rule needs the packages that draw, so an offline host makes all tables without them.


rule report:
    input:
        tuples=extracted,
        recorded=recorded,
        database=DATABASE,
        answers=ANSWERS,
        shares=SHARES,
        modules=MODULES,
        models=MODEL_TABLE,
        in_context=IN_CONTEXT,
        launches=LAUNCHES,
        requests=REQUESTS,
        sweeps=SWEEPS,
    output:
        page=report(REPORT, caption="../report/report.rst", category="Report"),
        figure=report(FIGURE, caption="../report/cost.rst", category="Report"),
    log:
        "logs/report.log",
    localrule: True
    conda:
        "../../envs/opcost.yaml"
    resources:
        processor=1,
    params:
        # A function, in whose text braces are no wildcards.
        shown=lambda wildcards: SHOWN.to_json(),
        operators=STUDY.operators,
        code=CODE,
    message:
        "Writing the report"
    script:
        "../../scripts/report.py"
