"""The types of the names that spdnn loads when they are first used."""

from spdnn import ops as ops
from spdnn.api import compile as compile
from spdnn.api import infer as infer
from spdnn.common.errors import SpdnnError as SpdnnError
from spdnn.engines.model import Model as Model
from spdnn.ops import models as models
from spdnn.ops.estimators import EstimatorModel as EstimatorModel
from spdnn.ops.onnx_model import OnnxModel as OnnxModel
from spdnn.problem.features import Inputs as Inputs
from spdnn.problem.network import Activation as Activation
from spdnn.problem.network import Layer as Layer
from spdnn.problem.network import Network as Network
from spdnn.problem.network import from_matrices as from_matrices
from spdnn.problem.result import Result as Result
from spdnn.report.frame import load_records as load_records
from spdnn.scheduling.taskgraph.settings import TaskgraphSettings as TaskgraphSettings
from spdnn.sources.formats.readers import open_inputs as open_inputs
from spdnn.sources.formats.readers import open_network as open_network
from spdnn.sources.radixnet import RadixNet as RadixNet
from spdnn.verify.classes import Agreement as Agreement
from spdnn.verify.classes import Scores as Scores
from spdnn.verify.classes import agreement as agreement
from spdnn.verify.classes import score as score

__version__: str
