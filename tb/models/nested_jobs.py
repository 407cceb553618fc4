"""Inputs and results of algorithms whose kernels launch kernels: those of workload files."""

from signalbox.driver.workload.nested_jobs import distances, graph, refined, rough_field

__all__ = ["distances", "graph", "refined", "rough_field"]
