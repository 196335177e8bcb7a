"""The same search as search.yaml, in Python."""

import bitfront as bf
from my_net import MyNet

data = "folder:./images:32"
search = bf.Search(MyNet, data, ["bnn", "bnn++"], name="shapes-python", epochs=4, trials=6).run()
print(search.front)
