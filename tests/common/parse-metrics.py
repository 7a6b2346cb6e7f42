#!/usr/bin/env python3
"""parse-metrics CLASSIC OPENMETRICS: reads both forms of a scrape by the parsers of prometheus-client, which fail at what is wrong, and compares.

Each series of one form is in the other. With an odd name the labels come back as they were.
"""

import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as classic


def series(parse, path):
    with open(path, encoding="utf-8", newline="") as file:
        families = list(parse(file.read()))
    assert all(family.documentation for family in families), "a family without help"
    assert not [family.name for family in families if family.type not in ("counter", "gauge")]
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "a family in two pieces"
    found = [(sample.name, tuple(sorted(sample.labels.items()))) for family in families for sample in family.samples]
    assert len(found) == len(set(found)), "a series twice"
    return set(found)


first, second = series(classic, sys.argv[1]), series(open_metrics, sys.argv[2])
assert first == second, first ^ second
assert any(("flow", 'odd "name"\n') in labels for _, labels in first), "an odd name"
print(f"{len(first)} series; both forms have the same series")
