"""Explore random programs: `python -m tests.fuzz --count 5000 [--seconds S] [--first SEED] [--orders default,random]`.

Status 1 if anything failed; each failure is in the folder that is named, bisected and reduced.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from passes.pipelines import PIPELINES
from tests.fuzz.explore import ORDERS
from tests.fuzz.report import Totals, lines, write_json
from tests.fuzz.workers import explore_all

SAY_EVERY = 20.0


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    orders = given.orders.split(",")
    unknown = sorted(set(orders) - {"random", *PIPELINES})
    if unknown:
        print(f"no order {unknown[0]!r}, expected random, {', '.join(PIPELINES)}", file=sys.stderr)
        return 2
    directory = Path(given.out or tempfile.mkdtemp(prefix="cleave-fuzz-"))
    begin = time.monotonic()
    deadline = None if given.seconds is None else begin + given.seconds
    totals, said = Totals(), begin
    for answer in explore_all(iter(range(given.first, given.first + given.count)), given.jobs, orders, directory, deadline):
        totals.add(answer)
        if time.monotonic() - said > SAY_EVERY:
            said = time.monotonic()
            print(f"{totals.programs} programs, {totals.programs / (said - begin):.2f} a second, {len(totals.filed)} failures", flush=True)
    seconds = time.monotonic() - begin
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print("\n".join(lines(totals, seconds, used.ru_utime + used.ru_stime)))
    if given.coverage:
        write_json(totals, seconds, Path(given.coverage))
    return 1 if totals.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="programs (default 200)")
    parser.add_argument("--seconds", type=float, help="begin no program after so many seconds")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes, each with its children (default 2)")
    parser.add_argument("--orders", default=",".join(ORDERS), help=f"random, {', '.join(PIPELINES)} (default {','.join(ORDERS)})")
    parser.add_argument("--out", help="where failures are filed (default: a new temporary folder)")
    parser.add_argument("--coverage", help="write the whole table of ops and passes there, as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
