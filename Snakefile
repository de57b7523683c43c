# What people run: `snakemake --cores 1`. The workflow itself lies in workflow/Snakefile.


include: "workflow/Snakefile"


rule default:
    default_target: True
    input:
        rules.all.input,
