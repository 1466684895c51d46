"""The program that runs inside an image: imports modules, one JSON line each.

It is text and not a function, because it runs under the image's Python, which may be an old one.
"""

SOURCE = r'''
import importlib, json, os, sys

nonce = sys.argv[1]
out = os.dup(1)


def say(**record):
    os.write(out, ("\n%s %s\n" % (nonce, json.dumps(record))).encode())


def chain_of(module, error):
    """Modules on the way to where it failed; what importlib and this program do is left out."""
    names, place, seen = [module], "", error.__traceback__
    while seen is not None:
        frame = seen.tb_frame
        name, path = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
        if path != __file__ and not path.startswith("<frozen") and name != "importlib":
            if name and name != names[-1]:
                names.append(name)
            place = "%s:%d" % (path, seen.tb_lineno)
        seen = seen.tb_next
    return names, place


def attempt(module):
    try:
        importlib.import_module(module)
    except BaseException as error:
        names, place = chain_of(module, error)
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if isinstance(error, SyntaxError):
            place = "%s:%s" % (error.filename, error.lineno)
        say(module=module, chain=names, kind=type(error).__name__, message=str(error)[:2000],
            missing=missing, place=place)
    else:
        say(module=module, chain=[module])


def torch():
    import torch
    archs = None
    try:
        archs = torch._C._cuda_getArchFlags()
    except Exception:
        pass
    say(torch=str(torch.__version__), cuda=str(torch.version.cuda), archs=archs)


sys.path[0:1] = [""]
sys.argv[0] = "-c"
if sys.argv[2:] == ["--torch"]:
    torch()
else:
    for name in sys.argv[2:]:
        attempt(name)
sys.stdout.flush()
os._exit(0)
'''
