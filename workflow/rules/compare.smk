# Tables from single rows.
#
#   in:  all measurements, the call overhead on each target, and each model's tuples
#   out: results/database.parquet     every operator measurement in results/, also of other studies
#        results/answers.parquet      every number of what follows, one in a row
#        results/comparison.parquet   estimates beside end-to-end measurements (+ .csv)
#        results/shares.parquet       each model's cost by operator (+ .csv)
#        results/modules.parquet      each model's cost by module (+ .csv)
#        results/in_context.parquet   operators in context and isolated (+ .csv)
#        results/launches.parquet     models end to end in other launch modes (+ .csv)
#        results/requests.parquet     the costs of requests to language models (+ .csv)
#        results/sweeps.parquet       the costs of models over axes (+ .csv)
#        results/summary.txt          the comparison as text, and details.txt what is behind it
#
# Tables show existing results: of the study, and of other studies (opcost.studies). They are made
# again for new files, and for changed parameters.


rule database:
    input:
        operators=operator_measurements,
        # Estimates of the measured models are compared with these: that gives the model error.
        models=model_measurements,
        overheads=overheads,
        devices=devices,
        tuples=extracted,
        traced=traced,
    output:
        report(
            DATABASE,
            caption="../report/database.rst",
            category="Operators",
        ),
    log:
        "logs/database.log",
    localrule: True
    conda:
        "../../envs/opcost.yaml"
    resources:
        processor=1,
    params:
        folders=list(SHOWN.folders.values()),
        beside=measured_beside,
        code=CODE,
    message:
        "Merging all operator measurements"
    script:
        "../../scripts/database.py"


rule compare:
    input:
        database=DATABASE,
        tuples=extracted,
        traced=traced,
        models=model_measurements,
        models_launched=models_launched,
    output:
        answers=ANSWERS,
        comparison=COMPARISON,
        comparison_csv=report(
            COMPARISON.with_suffix(".csv"),
            caption="../report/comparison.rst",
            category="Comparison",
        ),
        shares=SHARES,
        shares_csv=report(
            SHARES.with_suffix(".csv"), caption="../report/shares.rst", category="Comparison"
        ),
        modules=MODULES,
        modules_csv=report(
            MODULES.with_suffix(".csv"), caption="../report/modules.rst", category="Comparison"
        ),
        in_context=IN_CONTEXT,
        in_context_csv=report(
            IN_CONTEXT.with_suffix(".csv"),
            caption="../report/in_context.rst",
            category="Comparison",
        ),
        launches=LAUNCHES,
        launches_csv=report(
            LAUNCHES.with_suffix(".csv"), caption="../report/launches.rst", category="Comparison"
        ),
        requests=REQUESTS,
        requests_csv=report(
            REQUESTS.with_suffix(".csv"), caption="../report/requests.rst", category="Comparison"
        ),
        sweeps=SWEEPS,
        sweeps_csv=report(
            SWEEPS.with_suffix(".csv"), caption="../report/sweeps.rst", category="Comparison"
        ),
        summary=report(SUMMARY, caption="../report/summary.rst", category="Comparison"),
        details=DETAILS,
    log:
        "logs/compare.log",
    localrule: True
    conda:
        "../../envs/opcost.yaml"
    params:
        # A function, because braces in its result are not wildcards.
        shown=lambda wildcards: SHOWN.to_json(),
        operators=STUDY.operators,
        precision=STUDY.precision.models,
        published=lambda wildcards: str(STUDY.published),
        code=CODE,
    message:
        "Comparing estimates with end-to-end measurements"
    script:
        "../../scripts/compare.py"
