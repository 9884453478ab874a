# SPDX-License-Identifier: Apache-2.0
"""LLVM in a process of its own: IR text in, a relocatable object out.

LLVM may end the process that it runs in, on code that it cannot select or on malformed input. So
the compiler never calls it in its own process: it runs this file by path and exchanges messages
with it on pipes. A message is a JSON header and a payload, each preceded by its length. Only
llvmlite and the standard library are imported, to start fast; the folder of llvmlite is the first
argument, since an isolated interpreter sees no user paths. The last one is the number of the
process that started it.
"""

import ctypes
import json
import os
import resource
import signal
import struct
import sys
from typing import IO, Any

_PREFIX = struct.Struct("<II")
_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def end_with_parent(parent: int) -> None:
    """Let the system end this process as soon as ``parent``, which started it, has ended, in
    whatever way.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended before
        os._exit(1)


def read_message(stream: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """A header and its payload; None at the end of the stream."""
    prefix = stream.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size:
        return None
    header_bytes, payload_bytes = _PREFIX.unpack(prefix)
    header = stream.read(header_bytes)
    payload = stream.read(payload_bytes)
    if len(header) < header_bytes or len(payload) < payload_bytes:
        return None
    return json.loads(header), payload


def write_message(stream: IO[bytes], header: dict[str, Any], payload: bytes) -> None:
    """The inverse of :func:`read_message`."""
    text = json.dumps(header).encode()
    stream.write(_PREFIX.pack(len(text), len(payload)) + text + payload)
    stream.flush()


class Compiler:
    """Compiles modules for any target of LLVM; keeps its target machines."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        self._llvm = llvm
        self._machines: dict[tuple[str, str, int], Any] = {}
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()

    def _machine(self, triple: str, features: str, speed_level: int) -> Any:
        key = (triple, features, speed_level)
        if key not in self._machines:
            target = self._llvm.Target.from_triple(triple)
            self._machines[key] = target.create_target_machine(
                cpu="", features=features, opt=speed_level, reloc="pic", codemodel="small"
            )
        return self._machines[key]

    def compile(
        self, text: str, triple: str, features: str, speed_level: int, assembly: bool
    ) -> bytes:
        """The object of a module, or its assembly; RuntimeError if the text is not valid IR."""
        llvm, machine = self._llvm, self._machine(triple, features, speed_level)
        header = f'target datalayout = "{machine.target_data}"\ntarget triple = "{triple}"\n'
        with (
            llvm.create_context() as context,
            llvm.parse_assembly(header + text, context) as module,
        ):
            options = llvm.create_pipeline_tuning_options(speed_level=speed_level)
            # Vectors and unrolled loops are in the text already, as the schedule wants them.
            options.loop_vectorization = False
            options.slp_vectorization = False
            options.loop_interleaving = False
            options.loop_unrolling = False
            builder = llvm.create_pass_builder(machine, options)
            builder.getModulePassManager().run(module, builder)
            if assembly:
                return str(machine.emit_assembly(module)).encode()
            return bytes(machine.emit_object(module))


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Answer requests until the other side closes the pipe."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    compiler = Compiler()
    while (message := read_message(source)) is not None:
        header, payload = message
        try:
            result = compiler.compile(payload.decode(), **header)
        except RuntimeError as error:
            write_message(sink, {"error": str(error)}, b"")
        else:
            write_message(sink, {}, result)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[-1]))
    sys.path.append(sys.argv[1])
    serve(sys.stdin.buffer, sys.stdout.buffer)
