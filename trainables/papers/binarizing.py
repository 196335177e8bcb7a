"""Papers of methods that binarize weights and activations, and of what goes with them."""

from bitfront.trainables.papers.base import PAPERS, Paper

PAPERS.register(
    Paper(
        name="binaryconnect",
        title=(
            "BinaryConnect: Training Deep Neural Networks with Binary Weights during Propagations"
        ),
        authors="M. Courbariaux, Y. Bengio, J.-P. David",
        venue="NeurIPS",
        year=2015,
        link="https://arxiv.org/abs/1511.00363",
        short="BinaryConnect",
    )
)
PAPERS.register(
    Paper(
        name="bnn",
        title=(
            "Binarized Neural Networks: Training Deep Neural Networks with Weights and "
            "Activations Constrained to +1 or -1"
        ),
        authors="M. Courbariaux et al.",
        venue="",
        year=2016,
        link="https://arxiv.org/abs/1602.02830",
        short="BNN",
    )
)
PAPERS.register(
    Paper(
        name="bnn-plus",
        title="Regularized Binary Network Training (BNN+)",
        authors="S. Darabi et al.",
        venue="",
        year=2018,
        link="https://arxiv.org/abs/1812.11800",
        short="BNN+",
    )
)
PAPERS.register(
    Paper(
        name="proxconnect",
        title="Demystifying and Generalizing BinaryConnect",
        authors="T. Dockhorn et al.",
        venue="NeurIPS",
        year=2021,
        link="https://arxiv.org/abs/2110.13220",
        short="ProxConnect",
    )
)
PAPERS.register(
    Paper(
        name="proxquant",
        title="ProxQuant: Quantized Neural Networks via Proximal Operators",
        authors="Y. Bai, Y.-X. Wang, E. Liberty",
        venue="ICLR",
        year=2019,
        link="https://arxiv.org/abs/1810.00861",
        short="ProxQuant",
    )
)
PAPERS.register(
    Paper(
        name="bi-real",
        title=(
            "Bi-Real Net: Enhancing the Performance of 1-bit CNNs with Improved "
            "Representational Capability and Advanced Training Algorithm"
        ),
        authors="Z. Liu et al.",
        venue="ECCV",
        year=2018,
        link="https://arxiv.org/abs/1808.00278",
        short="Bi-Real Net",
    )
)
PAPERS.register(
    Paper(
        name="r-bnn",
        title="Rotated Binary Neural Network",
        authors="M. Lin et al.",
        venue="NeurIPS",
        year=2020,
        link="https://arxiv.org/abs/2009.13055",
        short="R-BNN",
    )
)
PAPERS.register(
    Paper(
        name="ir-net",
        title="Forward and Backward Information Retention for Accurate Binary Neural Networks",
        authors="H. Qin et al.",
        venue="CVPR",
        year=2020,
        link="https://arxiv.org/abs/1909.10788",
        short="IR-Net",
    )
)
PAPERS.register(
    Paper(
        name="reactnet",
        title=(
            "ReActNet: Towards Precise Binary Neural Network with Generalized Activation Functions"
        ),
        authors="Z. Liu et al.",
        venue="ECCV",
        year=2020,
        link="https://arxiv.org/abs/2003.03488",
        short="ReActNet",
    )
)
PAPERS.register(
    Paper(
        name="wrapnet",
        title="WrapNet: Neural Net Inference with Ultra-Low-Resolution Arithmetic",
        authors="R. Ni et al.",
        venue="ICLR",
        year=2021,
        link="https://arxiv.org/abs/2007.13242",
        short="WrapNet",
    )
)
PAPERS.register(
    Paper(
        name="bibert",
        title="BiBERT: Accurate Fully Binarized BERT",
        authors="H. Qin et al.",
        venue="ICLR",
        year=2022,
        link="https://arxiv.org/abs/2203.06390",
        short="BiBERT",
    )
)
PAPERS.register(
    Paper(
        name="bop",
        title="Latent Weights Do Not Exist: Rethinking Binarized Neural Network Optimization",
        authors="K. Helwegen et al.",
        venue="NeurIPS",
        year=2019,
        link="https://arxiv.org/abs/1906.02107",
        short="Bop",
    )
)
PAPERS.register(
    Paper(
        name="pmf",
        title="Proximal Mean-field for Neural Network Quantization",
        authors="T. Ajanthan, P. K. Dokania, R. Hartley, P. H. S. Torr",
        venue="ICCV",
        year=2019,
        link="https://arxiv.org/abs/1812.04353",
        short="PMF",
    )
)
PAPERS.register(
    Paper(
        name="bmd",
        title="Mirror Descent View for Neural Network Quantization",
        authors="T. Ajanthan et al.",
        venue="AISTATS",
        year=2021,
        link="https://arxiv.org/abs/1910.08237",
        short="BMD",
    )
)
PAPERS.register(
    Paper(
        name="lr-net",
        title="Learning Discrete Weights Using the Local Reparameterization Trick",
        authors="O. Shayer, D. Levi, E. Fetaya",
        venue="ICLR",
        year=2018,
        link="https://arxiv.org/abs/1710.07739",
        short="LR-net",
    )
)
