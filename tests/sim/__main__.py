"""`python -m tests.sim`: the tables, by hand. `--help` says what there is."""

import argparse
import gc
import sys

from tests.sim import tables
from tests.sim.profiles import PROFILES
from tests.sim.variants import MECHANISMS

TABLES = ("bars", "frontier", "ablations", "cost")
VARIANTS = ("restart", "exact", "exact-cold")


def main(argv: list[str]) -> int:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("what", nargs="?", choices=("run", "calibrate", "replay"), default="run")
    parser.add_argument("log", nargs="?", help="of `replay`: an event log of a daemon")
    parser.add_argument("--table", choices=TABLES, default="bars")
    parser.add_argument("--only", default="", help="the bars whose name contains this")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="slots")
    parser.add_argument("--variant", choices=VARIANTS, default="restart")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--without", nargs="*", default=(), choices=sorted(MECHANISMS))
    parser.add_argument("--stepped", action="store_true", help="of `calibrate`: processor time")
    asked = parser.parse_args(argv)
    if asked.what == "calibrate":
        from tests.sim.calibrate import calibrate

        return calibrate(stepped=asked.stepped)
    if asked.what == "replay":
        from tests.sim.replay import replay_file

        if asked.log is None:
            parser.error("replay what?")
        return replay_file(asked.log)
    # Events are made and forgotten by the million, and none of them refers to itself.
    gc.disable()
    given = {
        "seeds": asked.seeds, "seconds": asked.seconds, "off": asked.without, "jobs": asked.jobs,
    }  # fmt: skip
    if asked.table == "cost":
        printed = tables.cost()
    elif asked.table == "bars":
        printed = tables.bars(only=asked.only, **given)
    else:
        table = tables.frontier if asked.table == "frontier" else tables.ablations
        printed = table(asked.profile, asked.variant, **given)
    for table in printed:
        print(table, flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
