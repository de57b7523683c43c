# The report.
#
#   in:  results/database.parquet, answers.parquet, shares.parquet, modules.parquet, models.parquet,
#        in_context.parquet, launches.parquet, requests.parquet, sweeps.parquet
#   out: results/report.html   charts and tables of all of them, in one file that opens offline
#        results/cost.svg      operators, stacked, above the end-to-end measurement
#
# No other rule needs the packages for drawing, so an offline host makes all tables without them.


rule report:
    input:
        tuples=extracted,
        traced=traced,
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
        # A function, because braces in its result are not wildcards.
        shown=lambda wildcards: SHOWN.to_json(),
        operators=STUDY.operators,
        code=CODE,
    message:
        "Writing the report"
    script:
        "../../scripts/report.py"
