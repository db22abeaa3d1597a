"""The report: JSON (keys in README.md) and a table."""
import platform
import statistics

from machine import command_output

SCHEMA_VERSION = 1


def times(seconds, num_bytes):
    """The keys of a measurement; null where nothing was timed."""
    if not seconds:
        return {"samples": 0, "seconds_min": None, "seconds_median": None, "seconds_max": None,
                "gbps": None}
    median = statistics.median(seconds)
    return {"samples": len(seconds), "seconds_min": min(seconds), "seconds_median": median,
            "seconds_max": max(seconds), "gbps": num_bytes / median * 1e-9 if num_bytes else None}


def ratio(above, below):
    return above / below if above is not None and below is not None else None


def anchor(name, num_bytes, seconds, wrong=0):
    return {"name": name, "bytes": num_bytes, **times(seconds, num_bytes),
            "mismatched_bytes": wrong}


def best_anchor(anchors):
    """gbps of A0: the best of the contiguous copies."""
    return max((entry["gbps"] for entry in anchors if entry["gbps"]), default=None)


def rows_of(results, a0_gbps):
    """JSON rows of one configuration."""
    rows = []
    for result in results:
        config = result.config
        row = {"peer": result.peer, "op": result.op, "config": config.name, "bytes": config.bytes,
               "tensors": len(config.tensors), "layers": config.layers, "sets": result.num_sets,
               "nodes": result.nodes, **times(result.seconds, config.bytes)}
        row["share_of_a0"] = ratio(row["gbps"], a0_gbps)
        row["mismatched_bytes"] = result.mismatched_bytes
        row["fault"] = result.fault
        rows.append(row)
    median = {(row["peer"], row["op"]): row["seconds_median"] for row in rows}
    for row in rows:
        mine = median.get(("pagestash", row["op"]))
        row["ratio_to_pagestash"] = ratio(row["seconds_median"], mine)
        row["share_of_copy"] = ratio(median.get(("copy", "copy")), row["seconds_median"])
    return rows


def commit_of(root):
    return command_output("git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12",
                          "--exclude=*") or "unknown"


def versions(torch, triton, library):
    return {"python": platform.python_version(),
            "torch": torch.__version__ if torch else None,
            "torch_cuda": torch.version.cuda if torch else None,
            "triton": triton.__version__ if triton else None,
            "pagestash": library.version if library else None}


def assemble(machine, root, found, unavailable, anchors, rows):
    return {"schema_version": SCHEMA_VERSION, "machine": machine.describe(),
            "commit": commit_of(root), "versions": versions(*found),
            "unavailable": unavailable, "anchors": anchors, "rows": rows}


def cell(value, form):
    return form.format(value) if value is not None else "-"


def print_header(anchors, unavailable):
    for entry in anchors:
        if entry["samples"]:
            print(f"anchor {entry['name']}: {entry['bytes'] / 2**20:.1f} MiB, "
                  f"{cell(entry['gbps'], '{:.1f}')} GB/s, {entry['seconds_median'] * 1e3:.4f} ms")
    for entry in unavailable:
        print(f"unavailable: {entry['peer']}: {entry['why']}")
    print(f"{'config':<12} {'MiB':>8} {'peer':<12} {'op':<8} {'nodes':>6} {'ms':>9} {'GB/s':>8} "
          f"{'of A0':>6} {'x ours':>7}  bytes wrong")


def print_rows(rows):
    for row in rows:
        milliseconds = row["seconds_median"] * 1e3 if row["seconds_median"] is not None else None
        print(f"{row['config']:<12} {row['bytes'] / 2**20:>8.1f} {row['peer']:<12} {row['op']:<8} "
              f"{cell(row['nodes'], '{:g}'):>6} {cell(milliseconds, '{:.4f}'):>9} "
              f"{cell(row['gbps'], '{:.1f}'):>8} {cell(row['share_of_a0'], '{:.3f}'):>6} "
              f"{cell(row['ratio_to_pagestash'], '{:.2f}'):>7}  {row['mismatched_bytes']}"
              + (f"  fault: {row['fault']}" if row["fault"] else ""), flush=True)
