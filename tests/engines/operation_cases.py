"""Operation records that are sound, for tests to show, spoil and compare."""

SHA = "0123456789abcdef" * 4
MACHINE = {"copy_rates": 1e11, "load_rates": 1e12, "l2_load_rates": 5e11, "fma_rates": 2e11}
KINDS = {"ours": "ours", "ours-in-order": "ours", "blas": "dense", "mkl-dense": "dense", "dense": "dense"}


def made_operation(
    name="ours",
    seconds=(0.001, 0.0011, 0.0012),
    operation="spmm",
    sparsity=0.9,
    network="transformer",
    layer="ffn_1",
    set_name="a",
    imbalance=None,
    attention_bytes=None,
    comparison="0123456789abcdef",
    machine=True,
):
    """The record of one program on 512 x 1024 with 256 columns."""
    rows, columns, width = 512, 1024, 256
    nonzeros = round((1 - sparsity) * rows * columns)
    kind = KINDS.get(name, "sparse")
    done = (rows * columns if kind == "dense" else nonzeros) * width
    product = operation in ("spmm", "sddmm")
    entries = {"spmm": rows * width, "sddmm": nonzeros}.get(operation, 1000)
    return {
        "schema": "spdnn-operation",
        "version": 3,
        "case": f"{operation}.{set_name}.{network}.{layer}.n{width}.s{100 * sparsity:g}.{name}.t2",
        "created": "2025-01-02T03:04:05Z",
        "comparison": comparison,
        "operation": operation,
        "problem": {
            "set": set_name, "network": network, "layer": layer, "rows": rows, "columns": columns,
            "batch_columns": width, "batch": 1, "nonzeros": nonzeros,
            "phase": "inference", "repeats": 12, "origin": "generated", "topology_sha256": SHA,
            "seed": 0, "index_bits": 16,
        },
        "program": {
            "name": name, "kind": kind, "version": f"{name} 1.2", "threads_used": 1 if name == "scipy" else 2,
            "notes": {"threads_set": "2"},
        },
        "threads": 2,
        "prepare_seconds": [0.01],
        "seconds": list(seconds),
        "useful_operations": 2 * nonzeros * width,
        "multiply_adds": done if product else nonzeros * width,
        "matrix_bytes": 4 * rows * columns if kind == "dense" else 6 * nonzeros,
        "operand_bytes": 1 << 20,
        "attention_bytes": attention_bytes,
        "verification": {
            "entries": entries, "checked": entries, "seed": None, "rule": "n u sum|a b|", "worst": 0.25, "digest": SHA,
        },
        "thread_imbalance": imbalance and imbalance[0],
        "nonzero_imbalance": imbalance and imbalance[1],
        "machine": {
            "instruction_set": "x86_64_v3", **{key: [value / 2, value] for key, value in MACHINE.items()},
        } if machine else None,
        "environment": {
            "cpu": "A CPU", "cores": 2, "memory_bytes": 8 << 30, "gpu": None, "system": "Linux x86_64",
            "versions": {"numpy": "2.1.0", "python": "3.12.1"}, "commit": "abcdef123456", "code": SHA,
            "compiler": None, "lock": SHA, "command": "spdnn bench sets",
        },
        "load": None, "seal": None,
    }  # fmt: skip


def made_imbalance(busy=1.05, nonzeros=1.0):
    return [busy] * 3, nonzeros
