"""What people touch: the command and the Python API. In a checkout the other rooms lie beside this
folder, in an installed package inside it."""
