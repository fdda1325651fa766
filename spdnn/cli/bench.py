"""`spdnn bench`: our programs and other libraries on the same problems, verified, in turns on the same threads."""

from spdnn.cli import bench_kernels, bench_model, bench_products


def add(group) -> None:
    group.description = (
        "Compare spdnn with other libraries: calls of your model, products of your matrix, kernels of networks, or\n"
        "problem sets of sparse operations. Outputs are verified first; programs then take turns."
    )
    kinds = group.add_subparsers(metavar="WHAT", required=True)
    bench_model.add(kinds.add_parser("model", help="calls of your own model, ONNX or a chain of layers"))
    bench_products.add_matrices(kinds)
    bench_kernels.add(kinds.add_parser("kernels", help="one layer or a whole network of the challenge"))
    bench_products.add_sets(kinds.add_parser("sets", help="problem sets of SpMM and SDDMM, and whole models"))
