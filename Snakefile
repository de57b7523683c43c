# The entry point: `snakemake --cores 1`. The workflow itself is workflow/Snakefile.


include: "workflow/Snakefile"


rule default:
    default_target: True
    input:
        rules.all.input,
