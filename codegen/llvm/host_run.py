# SPDX-License-Identifier: Apache-2.0
"""The function of a host program that runs one kernel, and where the runtime's services are."""

from tilewright.codegen.llvm.builder import Builder, Module, Value, constant

SERVICES = {"direct": 8, "launch": 16, "arena": 24, "workspace": 32, "output": 40, "fail": 48}
"""Byte offsets in ``tw_services``."""

STATE = 56
"""That of the address of the state of the run."""


def define_run(module: Module) -> str:
    """The function that runs one kernel: called directly if its work is small and the runtime
    allows that, else launched. One for all launches, which keeps programs of a thousand of them
    small.
    """
    name = "tw.run"
    if not module.define_once(name):
        return name
    b = Builder(module)
    call, services, kernel, args = (
        Value(f"%{n}", "ptr") for n in ("call", "services", "fn", "args")
    )
    tasks, workspace, number = (Value(f"%{n}", "i64") for n in ("tasks", "workspace", "number"))
    zero = constant(0, "i64")

    def service(what: str, kind: str = "ptr") -> Value:
        address = b.emit(f"getelementptr i8, {services}, i64 {SERVICES[what]}", "ptr")
        return b.emit(f"load {kind}, {address}, align 8", kind)

    def invoke(result: str, function: Value, *arguments: Value) -> Value:
        given = ", ".join(map(str, arguments))
        return b.emit(f"call {result} {function.text}({given})", result)

    direct, allocate, run, launch = (
        b.new_block(n) for n in ("direct", "allocate", "run", "launch")
    )
    allowed = b.compare("ne", service("direct", "i64"), zero)
    b.branch_if(b.op("and", allowed, Value("%small", "i1")), direct, launch)
    b.enter(direct)
    b.branch_if(b.compare("ne", workspace, zero), allocate, run)
    b.enter(allocate)
    memory = invoke("ptr", service("workspace"), call, workspace)
    # Without memory the runtime has another try, and tells which kernel needs it.
    b.branch_if(b.compare("eq", memory, Value("null", "ptr")), launch, run)
    b.enter(run)
    scratch = b.phi([(Value("null", "ptr"), direct), (memory, allocate)])
    b.ret(invoke("i32", kernel, args, zero, tasks, scratch))
    b.enter(launch)
    b.ret(invoke("i32", service("launch"), call, kernel, args, tasks, workspace, number))
    parameters = ", ".join(
        map(str, (call, services, kernel, args, tasks, workspace, number, Value("%small", "i1")))
    )
    attributes = 'noinline nounwind "no-builtins"'
    module.functions.append(
        f"define internal i32 @{name}({parameters}) {attributes} {{\n{b.body()}\n}}"
    )
    return name
