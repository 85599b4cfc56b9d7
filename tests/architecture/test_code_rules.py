"""Rules of the code that import contracts do not see, by the syntax trees of all files."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator

from numpyro.infer.autoguide import AutoGuide

import asvi
from asvi.families.guide_protocol import Guide
from asvi.families.protocol import AnyFamily
from tests.support.sources import SOURCES, Source


def subclasses(cls: type) -> set[str]:
    return {cls.__name__}.union(*map(subclasses, cls.__subclasses__()))


def test_guides_and_families_are_asked_and_never_told_by_their_class():
    """What a guide or a family can do is a question of its protocol (``families/protocol.py``)."""
    for module in pkgutil.walk_packages(asvi.__path__, "asvi."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    classes = subclasses(Guide) | subclasses(AnyFamily) | subclasses(AutoGuide)
    assert {"AutoASVI", "Coupled", "AutoStructuredNormal"} <= classes
    found = []
    for source in SOURCES:
        ours = classes - of_numpyro(source)
        tests = () if source.package in ("guide", "families") else ast.walk(source.tree)
        found += [
            f"{source.path}:{node.lineno}: {ast.unparse(node)}"
            for node in tests
            if class_test(node) & ours
        ]
    assert found == []


def of_numpyro(source: Source) -> set[str]:
    """Names of NumPyro's distributions, one of which is called as a family is."""
    return {
        alias.asname or alias.name
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("numpyro.distributions")
        for alias in node.names
    }


def class_test(node: ast.AST) -> set[str]:
    """The classes for which a node tests: by isinstance, issubclass, ``type(x) is C``, match."""
    tested: list[ast.AST] = []
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
        tested = node.args[1:]
    elif isinstance(node, ast.Compare) and ast.unparse(node.left).startswith("type("):
        tested = node.comparators
    elif isinstance(node, ast.MatchClass):
        tested = [node.cls]
    parts = [part for x in tested for part in ast.walk(x)]
    return {p.id for p in parts if isinstance(p, ast.Name)} | {
        p.attr
        for p in parts
        if isinstance(p, ast.Attribute) and ast.unparse(p.value) != "dist"  # NumPyro's
    }


# What is public in spite of its underscore: the methods of a NamedTuple.
OF_A_TUPLE = {"_asdict", "_fields", "_replace"}
# NumPyro keeps these to itself, and has no other word for what they hold.
OF_NUMPYRO = {
    "_mask",  # of a masked distribution
    "_initial_value",  # of a Gaussian state space
    "_support",  # of an improper prior and of a Delta
    *("_InverseTransform", "_inv"),  # what `transform.inv` makes
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined(source: Source) -> set[str]:
    """Names of functions, classes, fields and attributes that a file makes itself."""
    found = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= {node.attr} if ast.unparse(node.value) in ("self", "cls") else set()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def test_no_private_attribute_is_read_on_what_another_file_made():
    found = []
    for source in SOURCES:
        allowed = defined(source) | OF_A_TUPLE | OF_NUMPYRO
        for node in ast.walk(source.tree):
            own = isinstance(node, ast.Attribute) and (
                ast.unparse(node.value) in ("self", "cls", "super()") or node.attr in allowed
            )
            if isinstance(node, ast.Attribute) and is_private(node.attr) and not own:
                found.append(f"{source.path}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


def test_no_private_name_is_imported():
    found = [
        f"{source.path}:{node.lineno}: {alias.name}"
        for source in SOURCES
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and (node.level or str(node.module).startswith("asvi"))
        for alias in node.names
        if is_private(alias.name)
    ]
    assert found == []


def is_number(node: ast.AST | None) -> bool:
    """A number, a sum or product of numbers, or a tuple of them."""
    match node:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float() | complex()):
            return True
        case ast.UnaryOp(operand=inner):
            return is_number(inner)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return bool(elements) and all(map(is_number, elements))
        case ast.Call(func=ast.Name(id="float" | "int")):
            return True
    return False


def constants(source: Source) -> Iterator[tuple[int, str]]:
    """Line and name of every upper-case number at the top level of a file."""
    for node in source.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_number(node.value):
            names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            yield from ((node.lineno, name) for name in names if name.strip("_").isupper())


MARKS = ("#: constant of the formula", "#: format")


def test_numbers_that_one_may_want_to_change_are_settings():
    """A threshold is a field of the stage's settings, with its unit and its reason."""
    found = [
        f"{source.path}:{line}: {name}"
        for source in SOURCES
        if not source.path.endswith("settings.py")
        for line, name in constants(source)
        if not any(mark in source.said_at(line) for mark in MARKS)
    ]
    assert found == []


TAKES_APART = {
    *("startswith", "endswith", "removeprefix", "removesuffix"),
    *("split", "rsplit", "partition", "rpartition"),
}
# The packages to which parameters have names. Others see programs, text of the user's, files.
SEES_PARAMETERS = ("families", "guide", "objective", "fitting", "results")
# What is taken apart there is something else than the name of a parameter, or a way out of use.
OTHER_TEXTS = {
    "families/amortized/networks.py": "the module of a user's network",
    "families/amortized/encode.py": "the module of a user's network",
    "families/amortized/plate_encoder.py": "names that a user's encoder gives to its outputs",
    "families/parameter.py": "the wrappers in front of a distribution's leaf",
    "guide/loss_guard.py": "the module of a user's loss",
    "fitting/archive.py": "names of the files in an archive",
    "fitting/correction/of_gaussian.py": "the name of a site that is left blank",
    "fitting/training/step_sizes.py": "name rules of `natural_units` without a guide, deprecated",
    "results/groups.py": "what a user calls an argument of the model",
    "results/inference_data.py": "a version's number",
    "results/storage/arguments.py": "the qualified name of a class of the user's",
    "results/storage/draws.py": "our own prefix of arrays in a file",
    "results/html.py": "a line of the report",
    "results/old_calls.py": "the path of an old name",
    "results/old_paths.py": "the path of a module",
    "results/display.py": "a line of the report",
    "results/summary.py": "the label of a number",
    "fitting/diagnostics/report.py": "a line of the report",
    "fitting/ladder.py": "the path of a module",
}


def takes_text_apart(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if ast.unparse(node.func.value) == "re":
        return True
    text = any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for argument in node.args[:1]
        for part in ast.walk(argument)
    )
    if [ast.unparse(a) for a in node.args] == ["f'{self.prefix}/'"]:  # what the guide itself put on
        return False
    return node.func.attr in TAKES_APART and (text or node.func.attr.startswith("remove"))


def is_kind_of_body(node: ast.Call) -> bool:
    """Whether a part of an address is asked if it is the body of a scan or of a branch."""
    return [ast.unparse(a) for a in node.args] in (["'scan'"], ["'cond'"])


def test_nothing_is_told_from_the_name_of_a_parameter():
    """What a parameter is, its record says (``families/parameter.py``): role, leaf, step size."""
    found = [
        f"{source.path}:{node.lineno}: {ast.unparse(node)}"
        for source in SOURCES
        if source.package in SEES_PARAMETERS and source.path not in OTHER_TEXTS
        for node in ast.walk(source.tree)
        if takes_text_apart(node) and not is_kind_of_body(node)
    ]
    assert found == []
    assert set(OTHER_TEXTS) <= {source.path for source in SOURCES}
