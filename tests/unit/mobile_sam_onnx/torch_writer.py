"""Writer of PyTorch's two checkpoint formats, for valid and for malicious files; needs no PyTorch."""

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mobile_sam_onnx.torch_files import LENGTH, MAGIC, VERSION

LITTLE = {"protocol_version": VERSION, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


class Global:
    """Object pickled as a reference to a module's name; the module need not be installed."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Call:
    """Object pickled as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments


class Storage:
    """Object pickled as a persistent id, which in legacy files ends with the storage that it is a view of, or None."""

    def __init__(self, kind: str, key: str, length: int, *view: Any) -> None:
        self.pid = ("storage", Global("torch", kind), key, "cpu", length, *view)


class Pickler(pickle._Pickler):
    """Pure-Python pickler that writes globals and storages as torch does."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)

    write: Callable[[bytes], None]
    save: Callable[[Any], None]

    def persistent_id(self, obj: Any) -> Any:
        return obj.pid if isinstance(obj, Storage) else None

    def save_global_name(self, obj: Global) -> None:
        self.write(b"c" + f"{obj.module}\n{obj.name}\n".encode())

    def save_call(self, obj: Call) -> None:
        self.save(obj.function)
        self.save(obj.arguments)
        self.write(b"R")

    dispatch[Global] = save_global_name
    dispatch[Call] = save_call


def tensor(key: str, shape: tuple[int, ...], kind: str = "FloatStorage", view: tuple[Any, ...] = (), **changes: Any):
    """Return a tensor with contiguous strides; `changes` replace `length`, `offset`, `size` or `stride`."""
    strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    values = {"length": int(np.prod(shape)), "offset": 0, "size": shape, "stride": strides, **changes}
    storage = Storage(kind, key, values["length"], *view)
    hooks = Call(Global("collections", "OrderedDict"))
    rebuild = Global("torch._utils", "_rebuild_tensor_v2")
    return Call(rebuild, storage, values["offset"], values["size"], values["stride"], False, hooks)


def write_zip(
    path: Path, content: Any, storages: dict[str, npt.NDArray[Any]], byteorder: str | None = "little", **options: Any
) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        with archive.open("archive/data.pkl", "w") as file:
            Pickler(file, 2).dump(content)
        if byteorder:
            archive.writestr("archive/byteorder", byteorder)
        for key, values in storages.items():
            archive.writestr(f"archive/data/{key}", values.tobytes())
    return path


def write_legacy(
    path: Path,
    content: Any,
    storages: dict[str, npt.NDArray[Any]],
    *,
    system: Any = LITTLE,
    keys: Any = None,
    magic: int = MAGIC,
) -> Path:
    with path.open("wb") as file:
        for value in (magic, VERSION, system, content, list(storages) if keys is None else keys):
            Pickler(file, 2).dump(value)
        for values in storages.values():
            file.write(LENGTH.type(values.size).tobytes() + values.tobytes())
    return path
