import bitfront as bf
from my_net import MyNet

search = bf.Search(
    MyNet, "folder:./images:32", ["bnn", "bnn++"], name="shapes-2", epochs=4, trials=6
).run()
print(search.front)
