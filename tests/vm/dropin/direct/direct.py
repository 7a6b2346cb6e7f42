"""What pyverbs.providers.mlx5 says of a device: a line for each thing that is asked of libmlx5.

usage: mlx5-direct.py DEVICE
"""

import sys

from pyverbs.device import Context
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.providers.mlx5.mlx5dv import Mlx5Context, Mlx5DVContextAttr, Mlx5UAR, Mlx5UMEM, Mlx5VAR


def ask(what, make):
    try:
        make()
        print(f"{what}: made")
    except PyverbsError as error:
        print(f"{what}: {error}")


name = sys.argv[1]
context = Context(name=name)
ask("open", lambda: Mlx5Context(Mlx5DVContextAttr(), name))
ask("UAR", lambda: Mlx5UAR(context))
ask("VAR", lambda: Mlx5VAR(context))
ask("UMEM", lambda: Mlx5UMEM(context, size=4096))
print("end")
