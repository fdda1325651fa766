"""The process in which DeepSparse runs, of the Python that has it; deepsparse.py starts it and names its files.

Each line that it reads is a question, a JSON object, and it writes an answer to each: `error` where it has none. This
file imports nothing of spdnn, whose Python and NumPy are others.

    model, shapes, threads   compile an ONNX file for inputs of these shapes      version
    inputs                   take the inputs of a turn from an .npz file: CALL.NUMBER
    outputs                  run the turn twice, write the outputs as .npz        seconds of the second turn, processor
                                                                                  seconds of this process so far
"""

import json
import os
import sys
import time


class Worker:
    """The model, and the inputs of a turn."""

    def answer(self, asked):
        """The answer to a question."""
        import numpy as np

        if "model" in asked:
            import deepsparse

            batch = asked["shapes"][0][0] if asked["shapes"] and asked["shapes"][0] else 1
            self.engine = deepsparse.compile_model(
                asked["model"], batch_size=batch, num_cores=asked["threads"], input_shapes=asked["shapes"]
            )
            return {"version": deepsparse.__version__}
        if "inputs" in asked:
            with np.load(asked["inputs"]) as arrays:
                places = sorted(tuple(map(int, name.split("."))) for name in arrays.files)
                self.inputs = [[] for _ in range(places[-1][0] + 1)]
                for call, number in places:
                    self.inputs[call].append(np.ascontiguousarray(arrays[f"{call}.{number}"]))
            return {}
        # Other programs too follow an untimed turn of their own at once.
        for inputs in self.inputs:
            self.engine.run(inputs)
        begun = time.perf_counter()
        turn = [self.engine.run(inputs) for inputs in self.inputs]
        seconds = time.perf_counter() - begun
        outputs = {f"{call}.{k}": out for call, outs in enumerate(turn) for k, out in enumerate(outs)}
        np.savez(asked["outputs"], **outputs)
        wait_for_idle(*map(float, sys.argv[-3:]))
        return {"seconds": seconds, "processor_seconds": time.process_time()}


def wait_for_idle(rest, longest, idle):
    """Wait until the threads of this process sleep: the next program needs the cores. As spdnn/core/turns.py does."""
    end = time.perf_counter() + longest
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(rest)
        if time.process_time() - before < idle * rest:
            return


def main():
    """Answer until there are no more questions; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
