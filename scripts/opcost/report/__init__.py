"""The report: one page of HTML that answers what the files of a study hold.

Each section of the page is a module: it turns `results.Results` into sentences, rows and charts.
`page` puts them together.
"""
