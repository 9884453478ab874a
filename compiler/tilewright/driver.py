# SPDX-License-Identifier: Apache-2.0
"""The driver: from a model to an artifact, one function call for each arrow of the architecture.

    import -> graph passes -> lower -> schedule and prove -> emit -> LLVM -> link

Kernels of equal form are scheduled, proven and compiled once. What one kernel's form costs
(schedule, proof, code) is kept in the compile cache under that form; a second compilation of the
same kernel imports neither islpy nor llvmlite.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tilewright.autotune.records import stored_schedules
from tilewright.codegen.artifact import (
    DefaultInfo,
    DefaultsEntry,
    KernelInfo,
    Manifest,
    PortInfo,
    SymbolInfo,
    TargetInfo,
    artifact_bytes,
    write_stream,
)
from tilewright.codegen.cache import CompileCache
from tilewright.codegen.kernels import CompiledKernel, compile_kernels
from tilewright.codegen.link import link_image
from tilewright.codegen.llvm.compile import compile_many
from tilewright.codegen.llvm.host import EmittedHost, emit_host
from tilewright.dumps import DEFAULTS, clear_dump, dump_host, dump_kernels
from tilewright.failures import placed_errors
from tilewright.files import replacing
from tilewright.frontends import import_model
from tilewright.ir.errors import PassError
from tilewright.ir.expr import UNBOUNDED, Const, Expr, Symbol
from tilewright.ir.graph import Constant, Module, Node, Value
from tilewright.ir.ops.group import Group
from tilewright.ir.rewrite import substitute
from tilewright.ir.target import Target
from tilewright.ir.verify_graph import verify_module
from tilewright.kernel_report import (
    KernelRow,
    KernelWarning,
    kernel_rows,
    kernel_warnings,
    launch_origins,
    log_warnings,
    warning_notes,
)
from tilewright.options import CompileOptions as CompileOptions
from tilewright.passes.constant_defaults import with_constant_defaults
from tilewright.passes.host import LaunchSpec, build_host
from tilewright.passes.host_sizes import check_constant_sizes
from tilewright.passes.lower.forms import lower_all
from tilewright.passes.lower.kernel import Lowered
from tilewright.passes.manager import (
    Dump,
    Instrument,
    PassContext,
    PassTime,
    Time,
    Verify,
    run_passes,
)
from tilewright.passes.op_kinds import is_alias
from tilewright.pipeline import graph_passes
from tilewright.programs import ConstantTable, Program, fixed_module, tell_of_defaults
from tilewright.target_choice import require_processor
from tilewright.version import VERSION

Progress = Callable[[str, int, int], None]
_logger = logging.getLogger("tilewright")
HOST_SYMBOL = "tw_host"
DEFAULTS_SYMBOL = "tw_host_defaults"
_SYMBOLS = (HOST_SYMBOL, DEFAULTS_SYMBOL)


@dataclass
class Report:
    """Where the time of a compilation went, and what came out.

    ``warnings`` are of kernels that are slow; ``files`` are those that the model refers to,
    relative to its folder.
    """

    phases: list[tuple[str, float]] = field(default_factory=list)
    passes: list[PassTime] = field(default_factory=list)
    kernels: list[KernelRow] = field(default_factory=list)
    warnings: list[KernelWarning] = field(default_factory=list)
    files: tuple[str, ...] = ()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases.append((name, time.perf_counter() - start))


@dataclass
class Build:
    """A compiled model: the three parts of an artifact, and the report."""

    manifest: Manifest
    constants: list[Any]
    image: bytes
    report: Report

    def save(self, path: "str | Path") -> None:
        """Write the artifact; the file appears whole or not at all. WriteError where it cannot."""
        with replacing(path) as stream:
            write_stream(stream, self.manifest, self.constants, self.image)

    def to_bytes(self) -> bytes:
        """The artifact in memory."""
        return artifact_bytes(self.manifest, self.constants, self.image)


def build(
    source: Any,
    target: Target,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
) -> Build:
    """Compile a model (path, bytes or ModelProto) for a target.

    ``shapes`` fixes or names dims of inputs; ``progress`` is told (phase, done, of).
    TilewrightError if the model cannot be compiled.
    """
    require_processor(target)
    _logger.info("The target is '%s'.", target)
    options = options or CompileOptions()
    report = Report()
    with report.phase("import"):
        module = import_model(source, shapes)
    report.files = module.files
    module, fixed = optimized(module, target, options, report)
    return build_module(module, target, options, report, progress, fixed)


def optimized(
    module: Module, target: Target, options: CompileOptions, report: Report
) -> tuple[Module, Module | None]:
    """An imported module after the graph passes; and with its defaults as constants, if there are
    any and they may be replaced.
    """
    fixed = None
    if options.constant_defaults:
        module = with_constant_defaults(module)
    elif module.defaults:
        fixed = fixed_module(module)
    with report.phase("graph passes"):
        optimize(module, target, options, report)
    if fixed is not None:
        if options.dump_ir is not None:
            options = replace(options, dump_ir=options.dump_ir / DEFAULTS)
        with report.phase("graph passes (defaults)"):
            optimize(fixed, target, options, report, " (defaults)")
    return module, fixed


def optimize(
    module: Module, target: Target, options: CompileOptions, report: Report, note: str = ""
) -> None:
    """Run the graph passes of the pipeline on an imported module; ``note`` ends their names in the
    report.
    """
    timer = Time()
    instruments: list[Instrument] = [timer]
    if options.verify:
        instruments.append(Verify(verify_module))
    if options.dump_ir is not None:
        clear_dump(options.dump_ir)
        instruments.append(Dump(options.dump_ir))
    context = PassContext(target, options.numerics, options.disabled, options.unchecked_indices)
    run_passes(module, graph_passes(), context, instruments)
    report.passes += [replace(row, name=row.name + note) for row in timer.rows]


def build_module(
    module: Module,
    target: Target,
    options: CompileOptions,
    report: Report,
    progress: Progress | None = None,
    fixed: Module | None = None,
) -> Build:
    """Compile a module whose nodes are constants, reshapes and groups; ``fixed`` is the same model
    with its defaults as constants.
    """
    with report.phase("lower"):
        programs = [_lowered(m) for m in (module, fixed) if m is not None]
        lowered = [low for program in programs for low in program.lowered]
    with report.phase("kernels"):
        cache = compile_cache(options)
        forms = {low.kernel.name: low.kernel for low in lowered}
        stored = stored_schedules(forms, target, VERSION, options.records) if options.tuned else {}
        if options.dump_ir is not None:
            dump_kernels(options.dump_ir, lowered)  # to be there for a kernel that fails
        with placed_errors(module, lowered):
            kernels = compile_kernels(forms, target, cache, progress, stored)
    with report.phase("host program"), placed_errors(module, lowered):
        hosts = _emit_hosts(programs, kernels, target, options)
        texts = [emitted.text for emitted in hosts.emitted]
        host_code = compile_many(texts, target, external=list(kernels), cache=cache)
    _note_kernels(report, programs, kernels)
    if options.dump_ir is not None:
        dump_kernels(options.dump_ir, lowered, kernels)
    with report.phase("link"):
        objects = [*host_code, *(k.code for k in kernels.values())]
        image = link_image(objects, *_SYMBOLS[: len(programs)])
    notes = warning_notes(report.warnings)
    manifest = _manifest(module, target, options, hosts, image.symbols, notes)
    return Build(manifest, hosts.table.arrays, image.code, report)


def _lowered(module: Module) -> Program:
    check_constant_sizes(module)
    return Program(module, lower_groups(module))


@dataclass(frozen=True)
class _Hosts:
    """The host programs, with the tables that they share."""

    emitted: list[EmittedHost]
    table: ConstantTable
    defaults: dict[str, DefaultInfo]


def _emit_hosts(
    programs: Sequence[Program],
    kernels: Mapping[str, CompiledKernel],
    target: Target,
    options: CompileOptions,
) -> _Hosts:
    """The code of the host programs, of which a second one is for calls that replace no default."""
    table = ConstantTable()
    found = _Hosts([], table, {})
    for program, symbol in zip(programs, _SYMBOLS, strict=False):
        module, earlier = program.module, found.emitted[-1] if found.emitted else None
        host = build_host(
            module, [_launch(low, kernels[low.kernel.name]) for low in program.lowered]
        )
        numbers = table.numbers(module, host.constants)
        found.emitted.append(emit_host(host.program, target, symbol, earlier, numbers))
        found.defaults.update(table.defaults(module))
        if earlier is not None:
            tell_of_defaults(programs[0].module.defaults, table.bytes_without(numbers))
        if options.dump_ir is not None:
            dump_host(options.dump_ir / DEFAULTS if earlier else options.dump_ir, host.program)
    return found


def lower_groups(module: Module) -> list[Lowered]:
    """The kernels of all groups of a module, in the order of their launches.

    PassError if a node that computes is in no group.
    """
    for node in module.graph.nodes:
        if not (isinstance(node.op, Constant | Group) or is_alias(node)):
            raise PassError(
                f"Node '{node.op.name}' of '{node.origin}' is in no group, so it has no kernel. "
                "Leave the pass 'fuse' on."
            )
    groups = [n for n in module.graph.nodes if isinstance(n.op, Group)]
    with placed_errors(module):
        return lower_all(groups, module.constants)


def compile_cache(options: CompileOptions) -> CompileCache | None:
    """The compile cache that the options ask for."""
    return CompileCache(options.cache_dir) if options.cache else None


def _launch(low: Lowered, kernel: CompiledKernel) -> LaunchSpec:
    """The call of a kernel, its sizes as expressions over the model's dims."""
    dims: dict[Expr, Expr] = dict(zip(low.kernel.symbols, low.scalars, strict=True))
    node = _node_of(low.results)
    return LaunchSpec(
        node,
        low.kernel.name,
        low.arguments,
        low.results,
        low.scalars,
        substitute(kernel.tasks, dims),
        substitute(kernel.work, dims),
        substitute(kernel.workspace, dims),
        low.origin,
    )


def _node_of(results: tuple[Value, ...]) -> Node:
    node = results[0].producer
    assert node is not None
    return node


def _note_kernels(
    report: Report, programs: Sequence[Program], kernels: Mapping[str, CompiledKernel]
) -> None:
    launches = [[(low.kernel.name, low.origin) for low in p.lowered] for p in programs]
    origins = launch_origins(*reversed(launches))
    report.kernels += kernel_rows(origins, kernels)
    usual = {name for name, _ in launches[-1]}
    report.warnings += kernel_warnings(origins, kernels, usual)
    log_warnings(report.warnings)


def _manifest(
    module: Module,
    target: Target,
    options: CompileOptions,
    hosts: _Hosts,
    symbols: Mapping[str, int],
    notes: dict[str, Any],
) -> Manifest:
    def port(name: str, v: Value) -> PortInfo:
        dims = tuple(int(d.literal) if isinstance(d, Const) else str(d) for d in v.type.shape)
        return PortInfo(name, v.type.dtype.full_name, dims)

    def input_port(name: str, v: Value) -> PortInfo:
        return replace(port(name, v), default=hosts.defaults.get(name))

    def symbol(s: Symbol) -> SymbolInfo:
        return SymbolInfo(s.name, s.lo, None if s.hi >= UNBOUNDED else s.hi, s.multiple)

    graph, emitted = module.graph, hosts.emitted[-1]
    second = None
    if len(hosts.emitted) > 1:
        first = len(hosts.emitted[0].calls)
        second = DefaultsEntry(symbols[DEFAULTS_SYMBOL], DEFAULTS_SYMBOL, first)
    return Manifest(
        TargetInfo(target.arch.replace("-", "_"), target.features, target.triple, target.cores),
        tuple(map(input_port, module.input_names, graph.inputs)),
        tuple(map(port, module.output_names, graph.outputs)),
        symbols[HOST_SYMBOL],
        HOST_SYMBOL,
        tuple(symbol(s) for s in module.symbols.values()),
        tuple(emitted.messages),
        tuple(KernelInfo(name, origin) for name, origin in emitted.calls),
        options.numerics,
        options.unchecked_indices,
        notes=notes,
        defaults_entry=second,
    )
