"""Results of a run: activity, tables, timelines. `make sim` is `tb.reports.workload`."""
