"""The report: one HTML page with the results of a study.

Each section of the page is a module that turns `results.Results` into sentences, rows and charts.
`page` combines them.
"""
